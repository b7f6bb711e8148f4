"""Complete devices that cooperate while the edge or all tiers are unreachable."""

from dataclasses import replace

from nearsight.device.cooperation.protocol import next_key
from support.gallery import exhibit_model, exhibit_models, photo_features
from support.sharing_devices import Scene, account, counted, holds, name
from support.waiting import wait_until


def test_without_an_edge_devices_prefetch_from_each_other_by_shared_counts(scene: Scene) -> None:
    cloud = scene.cloud()
    first, second = (scene.device(edge=None, cloud=cloud.endpoint) for _ in range(2))
    bystander = scene.stranger()
    scene.meet()
    for number in (0, 1, 0, 1, 0, 1):
        assert first.recognize_blocking(photo_features(number)).object_id == name(number)
    followed = {name(1): 3}
    wait_until(lambda: counted(bystander, next_key("museum", name(0))) == followed, what="counts")
    assert second.recognize_blocking(photo_features(0)).answered_by == "cloud"
    holds(second, 0, 1)
    found = second.recognize_blocking(photo_features(1))  # which it never saw before
    assert (found.answered_by, found.object_id) == ("device", name(1))
    assert (account(second).peer_models, account(second).cloud_models) == (2, 0)
    assert sorted(cloud.fetched) == [name(0), name(1)]


def test_while_the_edge_is_unreachable_devices_prefetch_from_each_other(scene: Scene) -> None:
    cloud = scene.cloud()
    first, second = (scene.device(cloud=cloud.endpoint) for _ in range(2))
    bystander = scene.stranger()
    scene.meet()
    for number in (0, 1, 0, 1, 0, 1):
        first.recognize_blocking(photo_features(number))
    holds(first, 0, 1, 2, 3, 4)
    followed = {name(1): 3}
    wait_until(lambda: counted(bystander, next_key("museum", name(0))) == followed, what="counts")
    scene.edge.stop()
    cloud.fetched.clear()

    def answers() -> bool:
        return second.recognize_blocking(photo_features(0)).answered_by == "cloud"

    wait_until(answers, what="an answer of the cloud")
    holds(second, 0, 1)
    assert second.recognize_blocking(photo_features(1)).answered_by == "device"
    assert account(second).peer_models >= 2
    assert cloud.fetched == []


def test_without_any_tier_devices_prefetch_from_each_other(scene: Scene) -> None:
    cloud = scene.cloud()
    first, second = (scene.device(edge=None, cloud=cloud.endpoint) for _ in range(2))
    bystander = scene.stranger()
    scene.meet()
    second.recognize_blocking(photo_features(0))
    holds(second, 0)
    for number in (0, 1, 0, 1, 0, 1):
        first.recognize_blocking(photo_features(number))
    wait_until(lambda: (state := first.prefetch_state) is not None and state.held_models == 2, what="models")
    followed = {name(1): 3}
    wait_until(lambda: counted(bystander, next_key("museum", name(0))) == followed, what="counts")
    cloud.stop()
    assert second.recognize_blocking(photo_features(0)).answered_by == "device"
    holds(second, 0, 1)
    assert second.recognize_blocking(photo_features(1)).answered_by == "device"
    assert account(second).peer_models == 1


def test_a_single_device_without_an_edge_recognises_objects_it_saw_in_their_current_version(
    scene: Scene,
) -> None:
    cloud = scene.cloud()
    device = scene.device(edge=None, cloud=cloud.endpoint)
    assert device.recognize_blocking(photo_features(0)).answered_by == "cloud"
    wait_until(
        lambda: device.recognize_blocking(photo_features(0)).answered_by == "device", what="a local answer"
    )
    assert account(device).cloud_models == 1
    cloud.set_models([replace(exhibit_model(0), version=2, label="restored"), *exhibit_models(5)[1:]])

    def answers_with_the_new_version() -> bool:
        found = device.recognize_blocking(photo_features(0))
        return (found.answered_by, found.label) == ("device", "restored")

    wait_until(answers_with_the_new_version, what="the new version on the device")
