"""Prometheus metrics of networks in memory, the same for cloud and edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.inference.model_memory import MemoryState

_Read = Callable[[MemoryState], float]
_COUNTERS: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "resident_requests": ("Requests whose network was in memory.", lambda one: one.counts.resident),
        "absent_requests": ("Requests whose network was not.", lambda one: one.counts.waited),
        "refused_requests": ("Requests whose network cannot be loaded.", lambda one: one.counts.refused),
        "loads": ("Networks that were loaded.", lambda one: one.counts.loads),
        "failed_loads": ("Loads that failed.", lambda one: one.counts.failed_loads),
        "load_seconds": ("Time of loads.", lambda one: one.counts.load_s),
        "evictions": ("Networks that others displaced.", lambda one: one.counts.evictions),
    }
)
_GAUGES: Mapping[str, tuple[str, _Read]] = MappingProxyType(
    {
        "resident": ("Networks in memory.", lambda one: len(one.resident)),
        "memory_bytes": ("Their memory, as measured.", lambda one: one.used_bytes),
        "budget_bytes": ("Memory that they may take.", lambda one: one.budget_bytes),
    }
)


def model_metrics(state: MemoryState) -> Iterator[Metric]:
    """What the networks of a daemon are and did."""
    for family, described in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, (text, read) in described.items():
            yield family(f"nearsight_models_{name}", text, value=read(state))
