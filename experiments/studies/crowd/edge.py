"""An edge without network and photos: the parts of `edge.catalogue_cache` on a virtual clock.

Requests carry their time. Models arrive shortly after they are requested, and building a snapshot takes no
time. All estimates and decisions are made by the daemon's classes: `DistributionEstimator`, `Optimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsight.common.clock import ManualClock
from nearsight.common.object_cache.expected_latency import ExpectedLatency
from nearsight.common.object_cache.profile import CacheProfile, RollingMean
from nearsight.edge.cache_size import Costs
from nearsight.edge.optimizer import CacheState, DecisionInputs, Optimizer
from nearsight.edge.request_distribution import DistributionEstimator, RequestDistribution
from nearsight.edge.settings import CacheSettings
from nearsight.experiments.traces.movement import generate_visits

_FETCH_S = 0.3
_JITTER = 0.2
_SECTION = 44
_VISITORS_AT_ONCE = 5
_VISIT_S = 850.0
_LEAD_S = 1800.0
"""Time that visitors have to fill the section before the clock starts [s]."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of the visitors of one section."""

    times_s: np.ndarray[Any, np.dtype[np.float64]]
    """Times since the crowd came to the section [s], ascending; (R,) float64."""
    object_ids: tuple[str, ...]
    """Requested objects, length R."""
    shares: Mapping[str, float]
    """Share of each object among these requests."""


def section_requests(section: int, stay_s: float, rng: np.random.Generator) -> Requests:
    """Generate one photo per second from each visitor who looks at an exhibit, once the section is full.

    The second section gets requests for three times as long, so that even the slowest estimate can adapt.
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
        open_s=long_s + _LEAD_S,
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
    """Costs of a lookup and a miss."""

    profile: CacheProfile
    """Lookup latency f(k) and recall(k)."""
    miss_ms: float
    """Median latency of a miss, a round trip to the cloud [ms]."""
    k_max: int = 10_000


class CrowdEdge:
    """The adaptive cache of one catalogue.

    Parameters
    ----------
    object_ids : sequence of str
        The catalogue.
    costs : EdgeCosts
        Costs of lookups and misses.
    half_life_s : float
        Half-life of the counts [s]; the prior is 1 as in the dissertation.
    rng : Generator
        Draws recognition results and latencies of misses.
    """

    def __init__(
        self, object_ids: Sequence[str], costs: EdgeCosts, half_life_s: float, rng: np.random.Generator
    ) -> None:
        settings = CacheSettings(k_max=costs.k_max)
        distribution = RequestDistribution(object_ids, prior=1.0, half_life_s=half_life_s)
        self._clock = ManualClock()
        self._estimator = DistributionEstimator(distribution, self._clock)
        self._misses = RollingMean(settings.miss_window, costs.miss_ms, full=False)
        self._curves = costs.profile.curves(len(object_ids))
        self._optimizer = Optimizer(settings)
        self._decide_every = settings.optimize_every
        self._costs = costs
        self._rng = rng
        self._cached: frozenset[str] = frozenset()
        self._arrives_s: dict[str, float] = {}
        self._since_decision = 0
        self.changed = False
        """Whether the last request changed the set of cached objects."""

    @property
    def size(self) -> int:
        """Number of objects in the cache."""
        return len(self._cached)

    def expected_hit_ratio(self, shares: Mapping[str, float]) -> float:
        """Probability that the cache answers a request that is drawn with these shares."""
        cached = math.fsum(shares.get(name, 0.0) for name in self._cached)  # the same result in any order
        return float(self._curves.recall[self.size]) * cached

    def count(self, object_id: str, now_s: float) -> None:
        """Count a request without a lookup."""
        self._clock.advance(now_s - self._clock.monotonic())
        self._estimator.count(object_id)

    def request(self, object_id: str, now_s: float) -> None:
        """Process a request: look up, count, and decide again if necessary."""
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
        situation = DecisionInputs(self._estimator.ranking(), costs)
        state = CacheState(self._cached, frozenset(), self._estimator.asked())

        def held(object_id: str) -> bool:
            return object_id in self._cached or self._arrives_s.get(object_id, np.inf) <= now_s

        step = self._optimizer.next(situation, self._costs.k_max, state, held)
        if step.wanted is not None:
            missing = [name for name in step.wanted if name not in self._cached]
            self._arrives_s = {name: self._arrives_s.get(name, now_s + _FETCH_S) for name in missing}
        if step.build is not None:
            self._cached = step.build
            self._estimator.entered(step.build)
            for name in step.build:
                self._arrives_s.pop(name, None)
            self.changed = True


def first_requests_needed(costs: EdgeCosts, requests: Requests, enough: float) -> int:
    """Number of requests after which an oracle's hit ratio is enough: a lower bound for every estimate.

    The oracle knows the true shares from the start and minimises the expected latency with them. Like every
    edge that fetches lazily (3.5.3), it holds only objects that were requested.

    Parameters
    ----------
    costs : EdgeCosts
        Costs of lookups and misses.
    requests : Requests
        Requests of the new section.
    enough : float
        Hit ratio to reach.

    Returns
    -------
    int
        The number of all requests if the hit ratio is never reached.
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
