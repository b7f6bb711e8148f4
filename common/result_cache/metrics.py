"""Prometheus metrics of result caches, the same for edge and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.result_cache.stage import ResultCacheState

_Read = Callable[[ResultCacheState], float]
_COUNTERS: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "hits": ("Photos answered with an earlier answer.", lambda one: one.counts.served),
        "misses": ("Photos without an earlier answer.", lambda one: one.counts.missed),
        "verifications": ("Photos with one that was verified first.", lambda one: one.counts.verifying),
        "corrections": ("Answers that a verification found to be wrong.", lambda one: one.counts.corrections),
    }
)
_GAUGES: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "entries": ("Answers that are kept.", lambda one: one.entries),
        "wrong_share": ("Estimated share of hits that are wrong.", lambda one: one.wrong_share),
        "wrong_share_bound": ("It is not larger, with 97.5 % confidence.", lambda one: one.wrong_share_bound),
        "alarm": ("1: more photos are answered wrongly than the settings allow.", lambda one: one.alarm),
        "on": ("1: it looks; 0: looking did not pay, and is tried again later.", lambda one: one.on),
        "cost_seconds": ("What looking costs each photo.", lambda one: one.cost_ms / 1e3),
        "saved_seconds": ("What hits save, per photo.", lambda one: one.saved_ms / 1e3),
    }
)


def result_cache_metrics(states: Mapping[str, ResultCacheState]) -> Iterator[Metric]:
    """Metrics of the result caches, by catalogue."""
    for family, described in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, (text, read) in described.items():
            metric = family(f"nearsight_result_cache_{name}", text, labels=["catalogue"])
            for catalogue, state in states.items():
                metric.add_metric([catalogue], read(state))
            yield metric
