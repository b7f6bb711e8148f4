"""Shared counts of steps, exactly once, and predictions from them by the rule of the edge."""

import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import ManualClock
from nearsight.common.errors import Unavailable
from nearsight.common.object_cache.markov import MarkovModel
from nearsight.device.cooperation.analytics import (
    MERGE_AFTER_S,
    PERIOD_S,
    POPULARITY_AGE_S,
    FadingCounts,
    PeerForecasts,
    StepCounts,
)
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.protocol import next_key, popularity_key
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.prefetching.predictions import Prediction
from support.manual_background import ManualBackground

POPULARITY = popularity_key("museum")
OBJECTS = ["a", "b", "c", "d"]


class Store:
    """Counters, and what was written and read."""

    def __init__(self) -> None:
        self.keys: dict[str, Counter[str]] = {}
        self.merges: list[str] = []
        self.reads: list[str] = []
        self.fails = False

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        assert ttl_s == 2 * PERIOD_S, "the store forgets what has faded"
        self.merges.append(key.rpartition("/")[0])
        self.keys.setdefault(key, Counter()).update(counts)
        return self._done(None)

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        self.reads.append(key.rpartition("/")[0])
        return self._done(self.keys.get(key, Counter()))

    @property
    def sums(self) -> dict[str, Counter[str]]:
        """Counts by key, over all periods."""
        sums: dict[str, Counter[str]] = {}
        for key, counts in self.keys.items():
            sums.setdefault(key.rpartition("/")[0], Counter()).update(counts)
        return sums

    def _done(self, value: object) -> Future:  # type: ignore[type-arg]
        done: Future[object] = Future()
        done.set_exception(Unavailable("gone")) if self.fails else done.set_result(value)
        return done

    def items(self, *_: object, **__: object) -> Future[object]:
        raise NotImplementedError

    append = remove = items


class Scene:
    """One device with a store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = Store()
        nobody: Any = None
        context = CooperationContext(
            "museum", NodeId(42), self.store, nobody, tuple, self.background, self.clock, random.Random(1)
        )
        context.digests.update(Listing(dict.fromkeys(OBJECTS, 1), 5))
        self.account = context.account
        self.counts = FadingCounts(context)
        self.steps = StepCounts(context)
        self.forecasts = PeerForecasts(context)

    def walk(self, path: str) -> None:
        previous = ""
        for current in path:
            self.steps.count(previous, current)
            previous = current

    def predict(self, current: str) -> Prediction:
        future = self.forecasts.get_next_objects(current, 1.0)
        self.background.run()
        return future.result(0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_steps_are_merged_together_and_each_once(scene: Scene) -> None:
    scene.walk("aabbbab")
    scene.background.run()
    assert scene.store.merges == []
    scene.background.advance(10 * MERGE_AFTER_S)
    assert sorted(scene.store.merges) == sorted(
        [POPULARITY, next_key("museum", "a"), next_key("museum", "b")]
    )
    assert scene.store.sums == {
        POPULARITY: {"a": 2, "b": 2},
        next_key("museum", "a"): {"b": 2},
        next_key("museum", "b"): {"a": 1},
    }
    assert scene.account.steps == 4


def test_steps_are_not_repeated_after_a_failure_since_the_store_keeps_them(scene: Scene) -> None:
    scene.store.fails = True
    scene.walk("ab")
    scene.background.advance(10 * MERGE_AFTER_S)
    assert len(scene.store.merges) == 2
    scene.steps.count("b", "c")
    scene.background.advance(10 * MERGE_AFTER_S)
    assert scene.store.sums[POPULARITY] == {"a": 1, "b": 1, "c": 1}


def test_the_last_steps_are_not_lost_on_a_clean_exit(scene: Scene) -> None:
    scene.walk("ab")  # the background thread runs no job before its end
    scene.steps.close(1.0)
    assert scene.store.sums[POPULARITY] == {"a": 1, "b": 1}


def test_the_prediction_is_that_of_an_edge_that_saw_the_same_steps(scene: Scene) -> None:
    edge = MarkovModel(OBJECTS)
    for visitor, path in enumerate(["abc", "abd", "acbd", "dab"]):
        scene.walk(path)
        for name in path:
            edge.observe(str(visitor), name, 0.0)
    scene.background.advance(MERGE_AFTER_S)
    for current in OBJECTS:
        expected = edge.next_objects(current, 0.0)
        found = scene.predict(current).following
        assert dict(zip(found.object_ids, found.probabilities, strict=True)) == pytest.approx(
            dict(zip(expected.object_ids, expected.probabilities, strict=True))
        )
    assert scene.predict("a").revision is None


def test_without_counts_nothing_is_predicted(scene: Scene) -> None:
    assert len(scene.predict("a").following) == 0


def test_objects_that_no_tier_listed_are_not_predicted(scene: Scene) -> None:
    scene.counts.add(next_key("museum", "a"), {"b": 1, "made up": 10**9})
    scene.counts.add(POPULARITY, {"made up too": 10**12})
    assert scene.predict("a").following.object_ids == ("b",)


def test_the_popularity_is_read_at_intervals(scene: Scene) -> None:
    for current in "abc":
        scene.predict(current)
    assert scene.store.reads.count(POPULARITY) == 2, "this hour and the one before"
    scene.clock.advance(POPULARITY_AGE_S)
    scene.predict("a")
    assert scene.store.reads.count(POPULARITY) == 4


def test_a_store_that_fails_fails_the_prediction(scene: Scene) -> None:
    scene.store.fails = True
    with pytest.raises(Unavailable):
        scene.predict("a")


def test_counts_keep_their_weight_for_one_hour_and_expire_after_two(scene: Scene) -> None:
    scene.clock.advance(0.25 * PERIOD_S)
    scene.counts.add(POPULARITY, {"a": 8})

    def weight() -> float:
        return scene.counts.read(POPULARITY).result(0).get("a", 0.0) / 8

    course = []
    for _ in range(8):
        course.append(weight())
        scene.clock.advance(0.25 * PERIOD_S)
    assert course == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_a_crowd_that_moves_on_is_followed_although_an_earlier_one_was_larger(scene: Scene) -> None:
    for _ in range(10):
        scene.walk("ab")
    scene.background.advance(1.9 * PERIOD_S)
    for _ in range(3):
        scene.walk("ac")
    scene.background.advance(MERGE_AFTER_S)
    assert scene.predict("a").following.object_ids[0] == "c"
