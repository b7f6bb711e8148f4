"""Rows of the map, made up: what a configuration takes at a place."""

from collections.abc import Callable, Iterable
from itertools import product

from nearsight.experiments.framework.experiment import StoredRow
from nearsight.experiments.studies.map.places import MACHINES, Place
from nearsight.experiments.studies.map.where_it_loses import CONFIGURATIONS
from nearsight.experiments.twin.session import ONLY_CLOUD

FAST, NEXUS, SMALL_FAST, SMALL_NEXUS = MACHINES
Latency = Callable[[Place, str, int], float]
"""Of a configuration at a place in a run [ms]."""


def every_place() -> list[Place]:
    """A small grid."""
    return [Place(*one) for one in product((1, 10, 40), (1, 3), (500, 2000), ("Slow", "baseline"), MACHINES)]


def map_rows(latency_ms: Latency, places: Iterable[Place], runs: int = 1) -> list[StoredRow]:
    """All configurations at these places; only their latency differs, and that only-cloud has no edge."""
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
