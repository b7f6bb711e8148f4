"""Complete devices that share adapted views."""

from random import Random
from typing import cast

from nearsight import PeerSettings, Recognizer
from nearsight.common.catalogue.model_fetcher import ModelSource
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.device.adaptation.adapter import AdaptationCounts
from nearsight.device.cooperation.cooperation import Cooperation
from nearsight.device.cooperation.protocol import adapt_key
from nearsight.device.prefetching.held_models import HeldModels
from support.adaptation import recognized
from support.gallery import SETTINGS, exhibit_model, photo_features
from support.sharing_devices import Scene, holds, name
from support.waiting import LONG_S, wait_until


def _adaptation(device: Recognizer) -> AdaptationCounts:
    state = device.cooperation_state
    assert state is not None
    assert state.adaptation is not None
    return state.adaptation


def test_devices_fetch_shared_views_with_the_model_of_an_object(scene: Scene) -> None:
    first, second = scene.device(adapt=True), scene.device(adapt=True)
    bystander = scene.stranger()
    scene.meet()
    first.recognize_blocking(photo_features(0))
    holds(first, 0, 1, 2, 3, 4)
    key = adapt_key("museum", name(0), 1)

    def learns() -> bool:
        first.recognize_blocking(photo_features(0))
        return len(bystander.store.items(key).result(LONG_S).items) > 0

    wait_until(learns, what="a shared view")
    second.recognize_blocking(photo_features(1))
    holds(second, 0, 1, 2, 3, 4)
    wait_until(lambda: _adaptation(second).views > _adaptation(second).learned, what="the view of another")


def test_photos_that_come_faster_than_they_are_learned_from_do_not_accumulate() -> None:
    held, upstream = HeldModels(10**7), cast(ModelSource, None)
    settings = PeerSettings(broadcast="off", adapt=True)
    device = Cooperation("museum", "d", held, upstream, settings, SETTINGS, SYSTEM_CLOCK, Random(1))
    held.put(exhibit_model(0), 0)
    found = recognized(0)
    for _ in range(100):
        device.followed(found.object_id, found, photo_features(0))
    assert len(device._background._jobs) < 10  # its thread does not run yet
    device.close()


def test_devices_that_do_not_adapt_learn_and_share_nothing(scene: Scene) -> None:
    bystander, device = scene.stranger(), scene.device()
    scene.meet()
    for number in (0, 1, 0):
        device.recognize_blocking(photo_features(number))
    holds(device, 0, 1, 2, 3, 4)
    device.recognize_blocking(photo_features(0))
    assert device.cooperation_state is not None
    assert device.cooperation_state.adaptation is None
    assert all(
        not bystander.store.items(adapt_key("museum", name(n), 1)).result(LONG_S).items for n in range(5)
    )


def test_views_of_strangers_without_a_matching_model_are_not_kept(scene: Scene) -> None:
    bad = scene.stranger()
    device = scene.device(adapt=True)
    scene.meet()
    for number in range(5):
        for item in (b"", bytes(100), bytes(100_000)):
            bad.store.append(adapt_key("museum", name(number), 1), item).result(LONG_S)
    device.recognize_blocking(photo_features(1))
    holds(device, 0, 1, 2, 3, 4)

    def refused() -> bool:
        return _adaptation(device).refused >= 5

    wait_until(refused, what="the refusals")
    assert device.recognize_blocking(photo_features(2)).object_id == name(2)
