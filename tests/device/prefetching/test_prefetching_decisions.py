"""Numbers of held objects and features by measured latencies, over real sockets."""

import itertools
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight import Recognizer
from nearsight.common.errors import ConfigurationError
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.prefetching.device_profile import DeviceProfile
from support.gallery import SETTINGS, SIDE
from support.prefetching_devices import Scene, holds, photo, settings
from support.waiting import wait_until


@pytest.fixture
def measuring(stack: ExitStack) -> Scene:
    """A scene whose devices measure the latency of misses."""
    return Scene(stack)


@pytest.mark.parametrize(("few_ms", "many_ms", "chosen"), [(5.0, 1e5, 200), (5.0, 5.1, 400)])
def test_the_number_of_features_follows_the_decision(
    scene: Scene, tmp_path: Path, few_ms: float, many_ms: float, chosen: int
) -> None:
    rows = [
        CacheProfile(
            backend="auto", query_features=features, largest_k=10, lookup_ms=(spent_ms,), recall=(recall,)
        )
        for features, spent_ms, recall in ((200, few_ms, 0.8), (400, many_ms, 0.95))
    ]
    DeviceProfile(profiles=tuple(rows)).save(tmp_path / "device.json")
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    state = device.prefetch_state
    assert state is not None
    assert state.query_features == chosen
    explanation = device.explain()
    assert explanation is not None
    assert explanation.chosen.features == chosen
    assert {terms.features for terms in explanation.alternatives} == {200, 400}
    assert device.recognize_blocking(photo(1)).answered_by == "device"


def test_few_features_are_taken_from_a_smaller_image(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, int], int]] = []

    def noted(image: GrayImage, count: int, threshold: int) -> Features:
        seen.append((image.size, count))
        return extract_features(image, count, threshold)

    monkeypatch.setattr("nearsight.device.query.extract_features", noted)
    pipeline = SETTINGS.model_copy(update={"limits": ImageLimits(longest_side=SIDE)})
    device = scene.device(settings(recognition=pipeline, features=200))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    seen.clear()
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    assert [(max(size), count) for size, count in seen] == [(round(0.7 * SIDE), 200)]


def test_only_known_photos_count_as_avoidable_misses(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for _ in range(2):
        device.recognize_blocking(photo(77))
    told = " 3 answers; a hit would have saved 1 of them"
    wait_until(lambda: told in _fact(device, "miss latency"), what="three answers")


def _fact(device: Recognizer, fact: str) -> str:
    explanation = device.explain()
    return dict(explanation.facts).get(fact, "") if explanation is not None else ""


@pytest.mark.parametrize(("edge_s", "lookup_ms", "held"), [(0.0, 3e4, 0), (0.5, 50.0, 5)])
def test_devices_hold_objects_if_the_edge_is_far_and_lookups_are_quick(
    measuring: Scene, tmp_path: Path, edge_s: float, lookup_ms: float, held: int
) -> None:
    scene = measuring
    row = CacheProfile(
        backend="auto", query_features=400, largest_k=10, lookup_ms=(lookup_ms,), recall=(0.9,)
    )
    DeviceProfile(profiles=(row,)).save(tmp_path / "device.json")
    scene.edge.delay_s = edge_s
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    wait_until(lambda: device.explain() is not None, what="a decision")
    explanation = device.explain()
    assert explanation is not None
    assert explanation.chosen.k == held
    holds(device, held)
    assert device.recognize_blocking(photo(0)).answered_by == ("device" if held else "edge")
    assert len(scene.edge.fetched) == held


def test_a_device_with_hits_notices_that_its_edge_is_fast_again(measuring: Scene, tmp_path: Path) -> None:
    scene = measuring
    row = CacheProfile(backend="auto", query_features=400, largest_k=10, lookup_ms=(400.0,), recall=(0.9,))
    DeviceProfile(profiles=(row,)).save(tmp_path / "device.json")
    scene.edge.delay_s = 1.0
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.answer_ms = 5.0
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    scene.edge.delay_s = 0.0
    numbers = itertools.cycle(range(5))

    def offloads() -> bool:
        device.recognize_blocking(photo(next(numbers)))
        return (state := device.prefetch_state) is not None and state.k == 0

    wait_until(offloads, what="a device that holds nothing")
    assert re.search("[1-9][0-9]* at the ", _fact(device, "miss latency"))


def test_a_configured_number_of_features_is_used(scene: Scene) -> None:
    device = scene.device(settings(features=400))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    state = device.prefetch_state
    assert state is not None
    assert state.query_features == 400
    with pytest.raises(ConfigurationError, match="no entry for 333 features"):
        scene.device(settings(features=333))
