"""Predictions: requested in order, remembered, and not requested while the edge is unreachable."""

from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
import pytest

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import ManualClock
from nearsight.common.errors import NearsightError, NotFound, Unavailable
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.device.prefetching.predictions import (
    EDGE_HALF_LIFE_S,
    MOST_PREDICTIONS,
    MOST_REPORTS,
    Forecasts,
    Prediction,
)
from nearsight.device.recognizer_settings import PrefetchSettings

FOLLOWING = NextObjects(("b", "c"), np.array([0.6, 0.3]))


class ManualSource:
    """An edge or peers that a test answers for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.calls: list[Future[Prediction]] = []

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        self.asked.append(current)
        self.calls.append(Future())
        return self.calls[-1]

    def answer(self, revision: int | None = 1) -> None:
        self.calls[-1].set_result(Prediction(FOLLOWING, revision))

    def fail(self, error: NearsightError | None = None) -> None:
        self.calls[-1].set_exception(error or Unavailable("gone"))


class Inline(BackgroundWorker):
    """Runs jobs in the calling thread."""

    def submit(self, job: Callable[[], None], *, name: str = "", after_s: float = 0.0) -> None:
        del name, after_s
        job()


class Scene:
    """Forecasts with a manual clock, and a manual edge and peers, or only one of them."""

    def __init__(self, *, edge: bool = True, nearby: bool = False) -> None:
        self.clock = ManualClock()
        self.edge, self.nearby = ManualSource(), ManualSource()
        self.heard: list[Prediction | None] = []
        self.strange = 0
        self.forecasts = Forecasts(
            self.edge if edge else None,
            Inline(self.clock),
            PrefetchSettings(refresh_s=10.0),
            self.clock,
            self.heard.append,
            self.nearby if nearby else None,
            on_unknown=self._count_unknown,
        )

    def _count_unknown(self) -> None:
        self.strange += 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_report_is_answered_with_a_prediction(scene: Scene) -> None:
    scene.forecasts.report("a")
    scene.edge.answer(revision=7)
    (prediction,) = scene.heard
    assert prediction is not None
    assert (prediction.following.object_ids, prediction.revision) == (("b", "c"), 7)
    assert scene.forecasts.get("a") is prediction
    assert scene.forecasts.get("b") is None


def test_steps_are_reported_one_at_a_time_in_their_order(scene: Scene) -> None:
    for name in "abca":
        scene.forecasts.report(name)
    assert scene.edge.asked == ["a"]
    for _ in range(4):
        scene.edge.answer()
    assert scene.edge.asked == ["a", "b", "c", "a"]


def test_the_same_object_is_reported_again_only_after_an_interval(scene: Scene) -> None:
    scene.forecasts.report("a")
    scene.edge.answer()
    scene.clock.advance(9.0)
    scene.forecasts.report("a")
    assert scene.edge.asked == ["a"]
    scene.clock.advance(2.0)
    scene.forecasts.report("a")
    assert scene.edge.asked == ["a", "a"]


def test_reports_that_wait_for_a_slow_edge_are_bounded(scene: Scene) -> None:
    for number in range(100):
        scene.forecasts.report(f"x{number}")
    asked = 0
    while len(scene.edge.calls) > asked:
        asked = len(scene.edge.calls)
        scene.edge.answer()
    assert asked == 1 + MOST_REPORTS
    assert scene.edge.asked[-1] == "x99"


def test_an_edge_that_is_away_is_asked_more_and_more_rarely_until_it_is_back(scene: Scene) -> None:
    for expected_wait_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        before = len(scene.edge.asked)
        scene.forecasts.report("a")
        assert len(scene.edge.asked) == before + 1
        scene.edge.fail()
        scene.clock.advance(expected_wait_s - 0.1)
        scene.forecasts.report("a")
        assert len(scene.edge.asked) == before + 1
        scene.clock.advance(0.2)
    assert scene.forecasts.failures == 7
    assert scene.heard == [None] * 7
    scene.forecasts.report("a")
    scene.edge.answer()
    assert scene.forecasts.failures == 0
    scene.forecasts.report("b")
    assert scene.edge.asked[-1] == "b"


def test_not_found_means_a_changed_catalogue_and_no_unreachable_edge(
    scene: Scene,
) -> None:
    scene.forecasts.report("a")
    scene.edge.fail()
    scene.clock.advance(2.0)
    assert (scene.forecasts.failures, scene.strange) == (1, 0)
    scene.forecasts.report("a")
    scene.forecasts.report("b")
    scene.edge.fail(NotFound("a was removed"))
    assert (scene.forecasts.failures, scene.strange) == (0, 1)
    assert scene.edge.asked[-1] == "b", "what was seen meanwhile is reported at once"
    assert scene.heard == [None, None]


def test_predictions_are_kept_while_the_edge_is_unreachable(scene: Scene) -> None:
    scene.forecasts.report("a")
    scene.edge.answer()
    scene.forecasts.report("b")
    scene.edge.fail()
    assert scene.forecasts.get("a") is not None


def test_remembered_predictions_are_bounded(scene: Scene) -> None:
    for number in range(3 * MOST_PREDICTIONS):
        scene.forecasts.remember(f"x{number}", Prediction(FOLLOWING, 1))
    known = [number for number in range(3 * MOST_PREDICTIONS) if scene.forecasts.get(f"x{number}")]
    assert known == list(range(2 * MOST_PREDICTIONS, 3 * MOST_PREDICTIONS))


def test_without_an_edge_the_devices_nearby_are_asked() -> None:
    scene = Scene(edge=False, nearby=True)
    assert scene.forecasts.edge_away
    scene.forecasts.report("a")
    scene.nearby.answer(revision=None)
    assert scene.forecasts.get("a") is scene.heard[-1]
    assert scene.forecasts.failures == 0
    scene.forecasts.report("b")
    scene.nearby.fail()
    assert scene.heard[-1] is None
    assert scene.nearby.asked == ["a", "b"]


def test_peers_are_asked_only_while_the_edge_is_unreachable() -> None:
    scene = Scene(nearby=True)
    scene.forecasts.report("a")
    scene.edge.answer()
    assert scene.nearby.asked == []
    scene.forecasts.report("b")
    scene.edge.fail()
    scene.nearby.answer(revision=None)
    assert scene.nearby.asked == ["b"]
    assert scene.forecasts.get("b") is not None
    scene.forecasts.report("c")
    assert scene.nearby.asked == ["b", "c"]
    scene.clock.advance(5.0)
    scene.forecasts.report("d")
    assert scene.edge.asked == ["a", "b", "d"]


def probabilities(scene: Scene, object_id: str) -> dict[str, float]:
    known = scene.forecasts.get(object_id)
    assert known is not None
    following = known.following
    return dict(zip(following.object_ids, following.probabilities.tolist(), strict=True))


def test_predictions_of_the_edge_decay_into_those_of_peers() -> None:
    scene = Scene(nearby=True)
    scene.forecasts.report("a")
    scene.edge.answer()
    of_edge = scene.forecasts.get("a")
    scene.clock.advance(20.0)
    scene.forecasts.report("a")
    scene.edge.fail()
    assert scene.forecasts.get("a") is of_edge
    nearby = NextObjects(("d", "b"), np.array([0.8, 0.2]))
    scene.nearby.calls[-1].set_result(Prediction(nearby, None))
    assert probabilities(scene, "a") == pytest.approx({"b": 0.6, "c": 0.3, "d": 0.0}, abs=0.01)
    scene.clock.advance(EDGE_HALF_LIFE_S - 20.0)
    scene.forecasts.report("a")
    scene.edge.fail()
    scene.nearby.calls[-1].set_result(Prediction(nearby, None))
    assert probabilities(scene, "a") == pytest.approx({"d": 0.4, "b": 0.4, "c": 0.15})
    scene.clock.advance(20 * EDGE_HALF_LIFE_S)
    scene.forecasts.report("a")
    scene.edge.fail()
    scene.nearby.calls[-1].set_result(Prediction(nearby, None))
    assert probabilities(scene, "a") == pytest.approx({"d": 0.8, "b": 0.2, "c": 0.0}, abs=1e-5)


def test_predictions_of_a_returned_edge_replace_those_of_peers() -> None:
    scene = Scene(nearby=True)
    scene.forecasts.report("b")
    scene.edge.fail()
    scene.forecasts.remember("b", Prediction(FOLLOWING, 3))  # back, before the devices nearby answer
    scene.nearby.answer(revision=None)
    known = scene.forecasts.get("b")
    assert known is not None
    assert known.revision == 3
