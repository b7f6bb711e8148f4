"""Devices that share, behind the real edge and the real cloud: the digests of all three agree."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight import PeerSettings, PrefetchSettings, Recognizer, RecognizerSettings
from support.cloud import CloudClient, running_cloud
from support.edge import running_edge
from support.peer_nodes import fast_settings
from support.pictures import photo_jpeg, picture_jpeg
from support.prefetching_devices import make_misses_costly
from support.sharing_devices import account
from support.waiting import LONG_S, wait_until

OBJECTS = range(1, 4)


class Scene:
    """A cloud with three objects, an edge, and devices."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        cloud = stack.enter_context(running_cloud(folder / "cloud.db"))
        self.cloud = stack.enter_context(CloudClient(cloud.endpoint))
        self.cloud.add({f"{number:02d}": [picture_jpeg(number)] for number in OBJECTS})
        self.edge = stack.enter_context(running_edge(cloud.endpoint)).endpoint

    def device(self, *others: Recognizer) -> Recognizer:
        peers: PeerSettings = fast_settings(
            enabled=True, static=tuple(report.endpoint for one in others if (report := one.peers()))
        )
        settings = RecognizerSettings(
            timeout_s=LONG_S, prefetch=PrefetchSettings(timeout_s=LONG_S, refresh_s=0.01), peers=peers
        )
        return self._stack.enter_context(Recognizer(self.edge, None, "museum", settings=settings))


@pytest.fixture
def scene(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    make_misses_costly(monkeypatch)
    return Scene(stack, tmp_path)


def looks(device: Recognizer, number: int, version: int = 0) -> None:
    """Look at an object until the device answers itself."""

    def answered_here() -> bool:
        found = device.recognize_blocking(photo_jpeg(number))
        assert found.object_id == f"{number:02d}"
        answered = found.object.version if found.object is not None else 0
        return found.answered_by == "device" and version in (0, answered)

    wait_until(answered_here, what=f"object {number} on the device")


def test_models_and_new_versions_spread_from_the_cloud_to_all_devices(scene: Scene) -> None:
    first = scene.device()
    second = scene.device(first)

    def have_met() -> bool:
        states = (first.cooperation_state, second.cooperation_state)
        return all(state is not None and state.peers == 1 for state in states)

    wait_until(have_met, what="the devices met")
    for number in OBJECTS:
        looks(first, number)
    for number in OBJECTS:
        looks(second, number)
    assert (account(first).edge_models, account(first).peer_models) == (3, 0)
    assert (account(second).edge_models, account(second).peer_models) == (0, 3)
    scene.cloud.add({"02": [picture_jpeg(2), picture_jpeg(2, side=300)]})
    for device in (first, second):
        looks(device, 1)
        looks(device, 2, version=2)
    assert account(first).rejected_models == account(second).rejected_models == 0
    assert account(first).edge_models + account(second).edge_models == 4
    assert account(first).peer_models + account(second).peer_models == 4
