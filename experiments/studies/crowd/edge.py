"""An edge without network and photos: the parts of `edge.catalogue_cache` on a virtual clock.

Requests come with their time; models arrive a moment after they are wanted, and a snapshot costs no time to
build. Everything that estimates and decides is the code of the daemon: `DistributionEstimator`,
`MissLatency`, `Optimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsight.common.clock import ManualClock
from nearsight.common.object_cache.expected_latency import ExpectedLatency
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.edge.optimizer import CacheState, Optimizer, Situation
from nearsight.edge.profiler import Costs, MissLatency
from nearsight.edge.request_distribution import DistributionEstimator, RequestDistribution
from nearsight.edge.settings import CacheSettings
from nearsight.experiments.traces.movement import Behaviour, generate_visits

_FETCH_S = 0.3
_JITTER = 0.2
_SECTION = 44
_VISITORS_AT_ONCE = 5
_VISIT_S = 850.0
_LEAD_S = 1800.0
"""The section is full when the clock starts."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What one section's visitors ask for."""

    times_s: np.ndarray[Any, np.dtype[np.float64]]
    """Since the crowd came to the section, rising; (R,) float64."""
    object_ids: tuple[str, ...]
    """What was asked for, length R."""
    shares: Mapping[str, float]
    """Of each object among these requests."""


def section_requests(section: int, stay_s: float, rng: np.random.Generator) -> Requests:
    """One photo per second of each visitor while they look, from the moment when all are there.

    The second section is asked three times as long, so that also the slowest estimate gets there.
    """
    long_s = stay_s * (3 if section else 1)
    names = [f"{section * _SECTION + position + 1:04d}" for position in range(_SECTION)]
    visitors = max(1, round(_VISITORS_AT_ONCE * (long_s + _LEAD_S) / _VISIT_S))
    visits = generate_visits(
        rng,
        sections=1,
        exhibits_per_section=_SECTION,
        visitors=visitors,
        exhibits=names,
        behaviour=Behaviour(open_s=long_s + _LEAD_S),
    )
    asked = sorted(
        (visit.start_s + moment - _LEAD_S, visit.exhibit)
        for visit in visits
        for moment in range(max(1, math.floor(visit.duration_s)))
    )
    kept = [(at_s, name) for at_s, name in asked if 0 <= at_s < long_s]
    names_asked, counts = np.unique([name for _, name in kept], return_counts=True)
    shares = dict(zip(names_asked.tolist(), (counts / counts.sum()).tolist(), strict=True))
    return Requests(np.array([at_s for at_s, _ in kept]), tuple(name for _, name in kept), shares)


@dataclass(frozen=True, slots=True)
class EdgeCosts:
    """What a lookup and a miss cost."""

    profile: CacheProfile
    """f(k) and recall(k)."""
    miss_ms: float
    """Median round trip to the cloud."""
    k_max: int = 10_000
    """Most objects in the cache."""


class CrowdEdge:
    """One catalogue's adaptive cache.

    Parameters
    ----------
    object_ids : sequence of str
        The catalogue.
    costs : EdgeCosts
        What lookups and misses cost.
    half_life_s : float
        Of the counts; the prior is 1 as in the dissertation.
    rng : Generator
        Draws what is recognised and how long misses take.
    """

    def __init__(
        self, object_ids: Sequence[str], costs: EdgeCosts, half_life_s: float, rng: np.random.Generator
    ) -> None:
        settings = CacheSettings(k_max=costs.k_max)
        distribution = RequestDistribution(object_ids, prior=1.0, half_life_s=half_life_s)
        self._clock = ManualClock()
        self._estimator = DistributionEstimator(distribution, self._clock)
        self._misses = MissLatency(costs.miss_ms, settings.miss_window)
        self._curves = costs.profile.curves(len(object_ids))
        self._optimizer = Optimizer(settings)
        self._decide_every = settings.optimize_every
        self._costs = costs
        self._rng = rng
        self._cached: frozenset[str] = frozenset()
        self._arrives_s: dict[str, float] = {}
        self._since_decision = 0
        self.changed = False
        """Whether the last request brought another set of cached objects."""

    @property
    def size(self) -> int:
        """Objects in the cache."""
        return len(self._cached)

    def expected_hit_ratio(self, shares: Mapping[str, float]) -> float:
        """Probability that the cache answers a request drawn with these shares."""
        cached = math.fsum(shares.get(name, 0.0) for name in self._cached)  # in any order the same
        return float(self._curves.recall[self.size]) * cached

    def count(self, object_id: str, now_s: float) -> None:
        """A request that is only counted."""
        self._clock.advance(now_s - self._clock.monotonic())
        self._estimator.count(object_id)

    def request(self, object_id: str, now_s: float) -> None:
        """A request: looked up, counted, and perhaps a reason to decide again."""
        self.changed = False
        inside = object_id in self._cached
        if not (inside and self._rng.random() < self._curves.recall[self.size]):
            self._misses.observe(self._costs.miss_ms * float(np.exp(self._rng.normal(0.0, _JITTER))))
        self.count(object_id, now_s)
        self._since_decision += 1
        arrived = any(at_s <= now_s for at_s in self._arrives_s.values())
        if not inside or arrived or self._since_decision >= self._decide_every:
            self._improve(now_s)

    def _improve(self, now_s: float) -> None:
        self._since_decision = 0
        costs = Costs(self._curves.lookup_ms, self._curves.recall, self._misses.mean)
        situation = Situation(self._estimator.ranking(), costs)
        step = self._optimizer.next(
            situation, self._costs.k_max, self._state, lambda name: self._held(name, now_s)
        )
        if step.wanted is not None:
            missing = [name for name in step.wanted if name not in self._cached]
            self._arrives_s = {name: self._arrives_s.get(name, now_s + _FETCH_S) for name in missing}
        if step.build is not None:
            self._cached = step.build
            self._estimator.entered(step.build)
            for name in step.build:
                self._arrives_s.pop(name, None)
            self.changed = True

    def _state(self, _wanted: frozenset[str]) -> CacheState:
        return CacheState(self._cached, frozenset(), self._estimator.asked())

    def _held(self, object_id: str, now_s: float) -> bool:
        return object_id in self._cached or self._arrives_s.get(object_id, np.inf) <= now_s


def first_requests_needed(costs: EdgeCosts, requests: Requests, enough: float) -> int:
    """Requests after which an oracle's hit ratio is enough: the floor of every estimate.

    The oracle knows the true shares from the start and minimises the expected latency with them; but like
    every edge that fetches lazily (3.5.3) it holds no object that nobody has asked for.

    Parameters
    ----------
    costs : EdgeCosts
        What lookups and misses cost.
    requests : Requests
        Of the new section.
    enough : float
        Hit ratio.

    Returns
    -------
    int
        All of the requests if it is never enough.
    """
    asked: set[str] = set()
    for number, object_id in enumerate(requests.object_ids, start=1):
        if object_id in asked:
            continue
        asked.add(object_id)
        shares = sorted((requests.shares[name] for name in asked), reverse=True)[: costs.k_max]
        cached = np.concatenate(([0.0], np.cumsum(shares)))
        curves = costs.profile.curves(len(shares))
        expected = ExpectedLatency(curves.lookup_ms, curves.recall, cached, costs.miss_ms)
        k = int(np.argmin(expected.evaluate()))
        if curves.recall[k] * cached[k] >= enough:
            return number
    return len(requests.object_ids)
