"""Generated rows of the map: latencies of configurations at places."""

from collections.abc import Callable, Iterable
from itertools import product

from nearsight.experiments.framework.experiment import StoredRow
from nearsight.experiments.studies.map.places import MACHINES, Place
from nearsight.experiments.studies.map.where_it_loses import CONFIGURATIONS
from nearsight.experiments.twin.session import ONLY_CLOUD

FAST, NEXUS, SMALL_FAST, SMALL_NEXUS = MACHINES
Latency = Callable[[Place, str, int], float]
"""Latency [ms] of a configuration at a place in a run."""


def every_place() -> list[Place]:
    """A small grid of places."""
    return [Place(*one) for one in product((1, 10, 40), (1, 3), (500, 2000), ("Slow", "baseline"), MACHINES)]


def map_rows(latency_ms: Latency, places: Iterable[Place], runs: int = 1) -> list[StoredRow]:
    """Rows of all configurations at these places; they differ in latency, and only-cloud has no edge."""
    return [
        {
            "machines": place.machines,
            "visitors": str(place.visitors),
            "sections": str(place.sections),
            "classes": str(place.classes),
            "network": place.network,
            "run": str(run),
            "tiers": tiers,
            **{name: str(latency_ms(place, tiers, run)) for name in ("p50_ms", "mean_ms", "p95_ms")},
            "up_kbps": "100.0",
            "down_kbps": "10.0",
            "edge_cpu": "0.0" if tiers == ONLY_CLOUD else "0.2",
            "cloud_cpu": "0.1",
            "recall": "0.95",
            "configuration": '{"on": "twin", "costs": "measured"}',
        }
        for place in places
        for run in range(1, runs + 1)
        for tiers in CONFIGURATIONS
    ]
