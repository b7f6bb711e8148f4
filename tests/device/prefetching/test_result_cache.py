"""The result cache of a device: real sockets and recognition, effects of hits, and invalidation."""

from dataclasses import replace
from itertools import groupby

import cv2
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from nearsight import Recognition, Recognizer, RecognizerSettings
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.device.metrics import RecognizerMetrics
from support.gallery import exhibit_model, exhibit_models
from support.prefetching_devices import QUICK, Scene, holds, name, photo
from support.waiting import wait_until

TRUSTING = QUICK.model_copy(update={"result_cache": ResultCacheSettings(enabled=True, beta=1e9)})
"""One answer of the classifier is enough."""


def served(device: Recognizer, number: int) -> Recognition:
    """Ask until the result cache answers."""
    wait_until(
        lambda: device.recognize_blocking(photo(number)).grain == "result",
        what="an answer of the result cache",
    )
    return device.recognize_blocking(photo(number))


def hits(device: Recognizer) -> int:
    state = device.result_cache_state
    assert state is not None
    return state.counts.served


def test_a_photo_that_is_taken_again_is_answered_without_recognition(scene: Scene) -> None:
    device = scene.device(TRUSTING)
    found = served(device, 0)
    asked, looked = len(scene.edge.forms), device.prefetch_state.lookups
    again = device.recognize_blocking(photo(0))
    assert (again.answered_by, again.grain, again.object_id) == ("device", "result", name(0))
    assert (again.corners, again.attempts, again.sent_bytes) == (None, (), 0)
    assert again.metadata == found.metadata == {"seed": "0"}
    assert (len(scene.edge.forms), device.prefetch_state.lookups) == (asked, looked)


def test_pixels_are_looked_up_as_files_are(scene: Scene) -> None:
    device = scene.device(TRUSTING)
    pixels = cv2.imdecode(np.frombuffer(photo(2), np.uint8), cv2.IMREAD_COLOR)
    wait_until(lambda: device.recognize_blocking(pixels).grain == "result", what="a hit")
    assert device.recognize_blocking(pixels).object_id == name(2)


def test_hits_are_reported_and_prefetched_for(scene: Scene) -> None:
    """The edge receives each step, and the device holds the predicted objects."""
    device = scene.device(TRUSTING)
    for number in (0, 1):
        served(device, number)
    holds(device, 5)
    wait_until(lambda: scene.edge.reported[-1:] == [("phone-1", name(1))], what="the last report so far")
    for number in (0, 1):
        hit = hits(device)
        assert served(device, number).grain == "result"  # who comes back is verified once
        assert hits(device) == hit + 2
        wait_until(
            lambda n=number: scene.edge.reported[-1] == ("phone-1", name(n)), what="the report of the hit"
        )
    steps = [one for one, _ in groupby(one for _, one in scene.edge.reported)]
    assert steps[-2:] == [name(0), name(1)]


REPLACED = replace(exhibit_model(10), object_id=name(0), version=2)


@pytest.mark.parametrize("models", [[REPLACED, *exhibit_models(5)[1:]], exhibit_models(5)[1:]])
def test_a_replaced_or_removed_object_is_not_answered_from_before(
    scene: Scene, models: list[ObjectModel]
) -> None:
    """The next report tells the device, which drops its results."""
    device = scene.device(TRUSTING)
    served(device, 0)
    scene.edge.set_models(models)
    wait_until(lambda: device.recognize_blocking(photo(0)).grain != "result", what="the change noticed")
    assert all(device.recognize_blocking(photo(0)).object_id is None for _ in range(2))


def test_answers_that_came_before_the_list_are_not_kept(scene: Scene) -> None:
    """Without the catalogue, a device cannot detect outdated answers."""
    scene.edge.listing_gate.clear()
    device = scene.device(TRUSTING)
    for _ in range(5):
        assert device.recognize_blocking(photo(0)).grain == "object"
    assert device.result_cache_state.entries == 0
    scene.edge.listing_gate.set()
    served(device, 0)


def test_a_result_without_corners_stays_without_corners(scene: Scene) -> None:
    """Like answers of the result cache of an edge."""
    scene.edge.corners = False
    device = scene.device()
    found = device.recognize_blocking(photo(0))
    assert (found.object_id, found.corners) == (name(0), None)


def test_its_counters_are_reported(scene: Scene) -> None:
    device, registry = scene.device(TRUSTING), CollectorRegistry()
    RecognizerMetrics(registry).watch(device)
    served(device, 0)
    wait_until(lambda: device.explain() is not None, what="a decision")
    assert dict(device.explain().facts)["result cache"].startswith("on: ")
    assert 'nearsight_result_cache_hits_total{catalogue="museum"} ' in generate_latest(registry).decode()


def test_without_a_result_cache_there_are_no_counters(scene: Scene) -> None:
    device, registry = scene.device(), CollectorRegistry()
    RecognizerMetrics(registry).watch(device)
    assert device.result_cache_state is None
    assert "result_cache" not in generate_latest(registry).decode()


def test_a_device_without_catalogue_sync_reports_that_it_keeps_no_answers(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud_only = RecognizerSettings(result_cache=TRUSTING.result_cache)
    with Recognizer(None, "tcp://127.0.0.1:1", "museum", settings=cloud_only) as device:
        assert device.result_cache_state is None
    assert "answers are not reused" in capsys.readouterr().err
