"""State of the model memory, as a line of text and as Prometheus metrics; the same for cloud and edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.model_cache.policy import ModelCosts


@dataclass(slots=True)
class Counts:
    """Number of requests by outcome, of loads and evictions; time of loads, and of the unloading in them."""

    resident: int = 0
    waited: int = 0
    refused: int = 0
    loads: int = 0
    failed_loads: int = 0
    evictions: int = 0
    load_s: float = 0.0
    unload_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Snapshot of the model memory."""

    budget_bytes: int
    used_bytes: int
    resident: Mapping[str, ModelCosts]
    loading: tuple[str, ...]
    measuring: tuple[str, ...]
    counts: Counts

    @property
    def why(self) -> str:
        """Summary in one line, for the health report."""
        counts = self.counts
        names = ", ".join(f"{name} {_mb(costs.size_bytes)}" for name, costs in sorted(self.resident.items()))
        busy = [
            *(f"{name} loading" for name in self.loading),
            *(f"{name} being measured" for name in self.measuring),
        ]
        return (
            f"{_mb(self.used_bytes)} of {_mb(self.budget_bytes)}: {'; '.join([names or 'none', *busy])}; "
            f"{counts.resident} requests found their network in memory, {counts.waited} did not; "
            f"{counts.loads} loads took {counts.load_s:.1f} s, {counts.evictions} evictions"
        )


def model_metrics(state: MemoryState) -> Iterator[Metric]:
    """Prometheus metrics of a daemon's networks."""
    counts = state.counts
    for name, text, value in (
        ("resident_requests", "Requests whose network was in memory.", counts.resident),
        ("absent_requests", "Requests whose network was not in memory.", counts.waited),
        ("refused_requests", "Requests whose network could not be loaded.", counts.refused),
        ("loads", "Networks that were loaded.", counts.loads),
        ("failed_loads", "Loads that failed.", counts.failed_loads),
        ("load_seconds", "Time of loads.", counts.load_s),
        ("unload_seconds", "Time of loads in which other networks were unloaded.", counts.unload_s),
        ("evictions", "Networks evicted from memory.", counts.evictions),
    ):
        yield CounterMetricFamily(f"nearsight_models_{name}", text, value=value)
    for name, text, value in (
        ("resident", "Networks in memory.", len(state.resident)),
        ("memory_bytes", "Measured memory of the networks in memory.", state.used_bytes),
        ("budget_bytes", "Memory budget of networks.", state.budget_bytes),
    ):
        yield GaugeMetricFamily(f"nearsight_models_{name}", text, value=value)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
