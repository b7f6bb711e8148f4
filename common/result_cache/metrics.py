"""Prometheus metrics of result caches, the same for edge and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.metrics import labelled
from nearsight.common.result_cache.stage import ResultCacheState

_Read = Callable[[ResultCacheState], float]
_COUNTERS: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "hits": ("Photos answered from the cache.", lambda one: one.counts.served),
        "misses": ("Photos without a cached answer.", lambda one: one.counts.missed),
        "verifications": ("Photos whose cached answer was verified.", lambda one: one.counts.verifying),
        "corrections": (
            "Cached answers that a verification found to be wrong.",
            lambda one: one.counts.corrections,
        ),
    }
)
_GAUGES: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "entries": ("Cached answers.", lambda one: one.entries),
        "wrong_share": ("Estimated share of hits that are wrong.", lambda one: one.wrong_share),
        "wrong_share_bound": (
            "Upper bound of wrong_share, 97.5 % confidence.",
            lambda one: one.wrong_share_bound,
        ),
        "alarm": ("1: more photos are answered wrongly than the settings allow.", lambda one: one.alarm),
        "on": (
            "1: in use; 0: suspended because lookups cost more than they save, tried again later.",
            lambda one: one.on,
        ),
        "cost_seconds": ("Mean cost of a lookup, per photo.", lambda one: one.cost_ms / 1e3),
        "saved_seconds": ("Mean time saved by hits, per photo.", lambda one: one.saved_ms / 1e3),
    }
)


def result_cache_metrics(states: Mapping[str, ResultCacheState]) -> Iterator[Metric]:
    """Metrics of the result caches, by catalogue."""
    for family, described in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, (text, read) in described.items():
            values = {catalogue: read(state) for catalogue, state in states.items()}
            yield labelled(family, f"nearsight_result_cache_{name}", text, "catalogue", values)
