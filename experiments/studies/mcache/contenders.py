"""The eviction policies of mCache's section 6.3, own variants, and a common replay for all of them.

IAM's rates are those of the last minute here. The paper does not publish its window; each of the seven models
gets six requests per minute. The variant with true rates has the momentary rates of the workload. The paper's
text describes IAM's rates as foreknowledge of the requests. This corresponds to the clairvoyant policy:
equation 1 with the true next request.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policies.iam import ImportanceAware, RateEstimator, SlidingWindow
from nearsight.common.model_cache.policy import Policy
from nearsight.common.model_cache.registry import make_policy
from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.model_serving.simulation import Served, knowledge_of, replay
from nearsight.experiments.model_serving.workloads import Workload

LFU, ALL_TIME, IAM, LONGER, TRUE, OURS, CLAIRVOYANT = (
    "LFU",
    "LFU, all time",
    "IAM",
    "IAM, 10 minutes",
    "IAM, true rates",
    "forecast",
    "clairvoyant",
)
_WINDOW_S, _LONGER_S = 60.0, 600.0
_TRUE_FOR_S = 5.0
"""Interval between two look-ups of the momentary rates [s]."""


class MomentaryRates(RateEstimator):
    """The true momentary rates of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rates: dict[str, float] = {}
        self._until_s = -math.inf

    def requested(self, model: str, now_s: float) -> None:
        """Does nothing: the rates are known."""

    def rate(self, model: str, now_s: float) -> float:
        """Rate at which the workload was drawn [1/s]."""
        if now_s >= self._until_s:
            self._rates = self._workload.rates_at(now_s)
            self._until_s = now_s + _TRUE_FOR_S
        return self._rates[model]


def _named(name: str) -> Callable[[Workload], Policy]:
    return lambda workload: make_policy(name, knowledge_of(workload.requests))


POLICIES: dict[str, Callable[[Workload], Policy]] = {
    LFU: _named("lfu"),
    ALL_TIME: _named("popularity"),
    "LRU": _named("lru"),
    "ARC": _named("arc"),
    "SRRIP": _named("srrip"),
    IAM: lambda _workload: ImportanceAware(SlidingWindow(_WINDOW_S)),
    LONGER: lambda _workload: ImportanceAware(SlidingWindow(_LONGER_S)),
    TRUE: lambda workload: ImportanceAware(MomentaryRates(workload)),
    OURS: _named("forecast"),
    CLAIRVOYANT: _named("cremebrulee-oracle"),
}
"""Policies by their name in tables and pictures. LFU counts requests since the load; the paper does
not say what its LFU counts."""


def play(policy: str, workload: Workload, memory: float) -> Served:
    """Replay a workload, one request at a time, on an empty cache with this share of the models' total size.

    The cache has room for at least the largest model.
    """
    largest = max(one.size_bytes for one in workload.costs.values())
    cache = ModelCache(max(largest, int(memory * workload.size_bytes)), POLICIES[policy](workload))
    return replay(workload.requests, workload.costs, cache)


def row_of(served: Served) -> Row:
    """Columns for tables and figures."""
    return {
        "hit_ratio": round(served.hit_ratio, 5),
        "load_s": round(served.load_ms_per_request / 1e3, 5),
        "load_s_of_misses": round(served.load_ms_per_miss / 1e3, 5),
        "latency_s": round(float(served.latency_ms.mean()) / 1e3, 5),
    }
