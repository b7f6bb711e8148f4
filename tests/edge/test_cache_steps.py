"""From decisions to snapshots: fetch first, build what is here when that is worth it."""

import numpy as np

from nearsight.edge.cache_change import CacheState
from nearsight.edge.cache_steps import CacheStep, CacheSteps
from nearsight.edge.optimizer import AdaptivePolicy, Optimizer, Situation
from nearsight.edge.profiler import Costs
from nearsight.edge.request_distribution import RequestDistribution

CHEAP = Costs(0.001 * np.arange(11.0), np.full(11, 0.9), 1000.0)


def situation(**counts: int) -> Situation:
    distribution = RequestDistribution("abcdefghij")
    for name, count in counts.items():
        distribution.count(name, 0.0, count)
    return Situation(distribution.ranking(0.0), CHEAP)


class Cache:
    """A cache that does what it is told."""

    def __init__(self) -> None:
        self.steps = CacheSteps(Optimizer(AdaptivePolicy(0.01)))
        self.cached: frozenset[str] = frozenset()
        self.here: set[str] = set()

    def step(self, now: Situation, asked: dict[str, int] | None = None, k_max: int = 10) -> CacheStep:
        def state(_wanted: frozenset[str]) -> CacheState:
            return CacheState(self.cached, frozenset(), asked or {})

        taken = self.steps.next(now, k_max, state, self.here.__contains__)
        self.cached = self.cached if taken.build is None else taken.build
        return taken


def test_models_are_wanted_first_and_built_as_they_arrive() -> None:
    cache = Cache()
    first = cache.step(situation(a=5, b=3), {"a": 1, "b": 1})
    assert (first.wanted, first.build) == (("a", "b"), None), "nothing is here yet"
    cache.here = {"b"}
    assert cache.step(situation(a=5, b=3), {"a": 1, "b": 1}).build == {"b"}
    cache.here = {"a", "b"}
    assert cache.step(situation(a=5, b=3), {"a": 1}).build == {"a", "b"}
    last = cache.step(situation(a=5, b=3))
    assert (last.wanted, last.build) == (None, None), "the cache is as it should be"


def test_the_aim_stays_while_nothing_better_is_worth_it() -> None:
    cache = Cache()
    cache.step(situation(a=5000), {"a": 1})
    cache.here = {"a", "b"}
    cache.step(situation(a=5000), {"a": 1})
    taken = cache.step(situation(a=5000, b=1))
    assert taken.decision.object_ids == ("a", "b")
    assert (taken.wanted, taken.build) == (None, None), "b saves less than a snapshot is worth"


def test_a_cache_that_is_too_large_shrinks_whatever_it_costs() -> None:
    cache = Cache()
    cache.here = {"a", "b", "c"}
    cache.step(situation(a=5, b=4, c=3), {"a": 1, "b": 1, "c": 1})
    assert cache.cached == {"a", "b", "c"}
    taken = cache.step(situation(a=5, b=4, c=3), k_max=1)
    assert taken.shrinks
    assert (taken.wanted, taken.build) == (("a",), {"a"})
