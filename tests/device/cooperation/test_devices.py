"""Complete devices that share models and counts."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from nearsight import Recognizer
from nearsight.device.cooperation.protocol import model_key, next_key, popularity_key
from nearsight.device.peers.store import shared_store
from support.gallery import photo_features
from support.sharing_devices import Scene, account, counted, holds, name
from support.waiting import LONG_S, wait_until


def all_look(devices: Sequence[Recognizer], number: int) -> None:
    """Show an object to all devices at the same time."""
    start = threading.Barrier(len(devices))

    def look(device: Recognizer) -> None:
        start.wait(LONG_S)
        device.recognize_blocking(photo_features(number))

    with ThreadPoolExecutor(len(devices)) as crowd:
        list(crowd.map(look, devices))


def test_ten_devices_that_need_the_same_models_fetch_them_once_from_the_edge(scene: Scene) -> None:
    scene.edge.predict = lambda _: scene.edge.prediction({name(1): 0.5, name(2): 0.3})
    devices = [scene.device() for _ in range(10)]
    scene.meet()
    all_look(devices, 0)
    for device in devices:
        holds(device, 0, 1, 2)
    for device in devices:
        for number in (0, 1, 2):
            found = device.recognize_blocking(photo_features(number))
            assert (found.answered_by, found.object_id) == ("device", name(number))
    accounts = [account(device) for device in devices]
    assert sum(one.edge_models for one in accounts) == len(scene.edge.fetched) == 3
    assert sum(one.peer_models for one in accounts) == 27
    assert sum(one.served_models for one in accounts) == 27
    assert sum(one.rejected_models for one in accounts) == 0
    for device, one in zip(devices, accounts, strict=True):
        state = device.prefetch_state
        assert state is not None
        assert state.account.fetched_models == one.edge_models + one.peer_models == 3
        assert state.account.fetched_bytes == one.edge_bytes + one.peer_bytes


def test_if_the_claiming_device_fails_another_one_fetches_the_model(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_store, "CLAIM_LEASE_S", 2.0)
    scene.edge.predict = lambda _: scene.edge.prediction({name(1): 0.5})
    dying = scene.stranger()
    devices = [scene.device() for _ in range(4)]
    scene.meet()
    for number in (0, 1):
        assert dying.store.items(model_key("museum", name(number), 1), claim=True).result(LONG_S).wait_ms == 0
    monkeypatch.setattr(shared_store, "CLAIM_LEASE_S", LONG_S)  # of the device that takes over
    all_look(devices, 0)
    for device in devices:
        holds(device, 0, 1)
    assert sorted(scene.edge.fetched) == [name(0), name(1)]


@pytest.mark.parametrize("share", ["redirect", "direct"])
def test_a_later_device_fetches_models_from_the_others(scene: Scene, share: str) -> None:
    first = scene.device(share=share)
    second = scene.device(share=share)
    scene.meet()
    first.recognize_blocking(photo_features(0))
    holds(first, 0, 1, 2, 3, 4)
    wait_until(lambda: account(first).edge_models == 5, what="models")
    second.recognize_blocking(photo_features(0))
    holds(second, 0, 1, 2, 3, 4)
    assert second.recognize_blocking(photo_features(3)).answered_by == "device"
    assert len(scene.edge.fetched) == 5
    assert (account(second).peer_models, account(second).edge_models) == (5, 0)
    assert account(first).served_models == (5 if share == "redirect" else 0)


def test_a_device_that_does_not_share_models_asks_the_edge(scene: Scene) -> None:
    first, second = scene.device(), scene.device(share="off")
    scene.meet()
    first.recognize_blocking(photo_features(0))
    holds(first, 0, 1, 2, 3, 4)
    second.recognize_blocking(photo_features(0))
    holds(second, 0, 1, 2, 3, 4)
    assert len(scene.edge.fetched) == 10
    assert (account(second).peer_models, account(second).edge_models) == (0, 5)


def test_models_of_a_closed_device_are_fetched_from_another(scene: Scene) -> None:
    devices = [scene.device() for _ in range(3)]
    scene.meet()
    for device in devices[:2]:
        device.recognize_blocking(photo_features(0))
        holds(device, 0, 1, 2, 3, 4)
    devices[0].close()
    scene.devices.remove(devices[0])
    devices[2].recognize_blocking(photo_features(0))
    holds(devices[2], 0, 1, 2, 3, 4)
    assert account(devices[2]).peer_models == 5
    assert len(scene.edge.fetched) == 5


def test_every_step_is_counted_once_also_if_devices_close_immediately(scene: Scene) -> None:
    bystander = scene.stranger()
    devices = [scene.device() for _ in range(3)]
    scene.meet()
    for device in devices:
        for number in (0, 0, 1, 2, 0):
            device.recognize_blocking(photo_features(number))
    wait_until(lambda: all(account(device).steps == 4 for device in devices), what="steps")
    for device in devices:
        device.close()

    wait_until(lambda: bystander.peers() == (), what="farewells")
    expected = {
        popularity_key("museum"): {name(0): 6, name(1): 3, name(2): 3},
        next_key("museum", name(0)): {name(1): 3},
        next_key("museum", name(2)): {name(0): 3},
    }
    for key, counts in expected.items():
        assert counted(bystander, key) == counts
