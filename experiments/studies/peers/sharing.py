"""Cooperative prefetching for a museum's visitors: downloads from the edge with and without cooperation.

Cloud, edge and devices are real processes, as in the experiment ``prefetching``. The devices prefetch with an
adaptive number of features. The two configurations differ only in whether the devices cooperate. The bytes of
models that the edge sent are those that the edge itself counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nearsight.experiments.framework import numbers
from nearsight.experiments.framework.experiment import Row, RunOptions, StoredRow
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.session import Played, Tiers
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.answers import answer_numbers
from nearsight.experiments.studies.cachier.prefetching import NETWORK, Plan
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.experiments.studies.profiles import Profiles, sharing_settings

ALONE, SHARING = "alone", "sharing"
PHOTO, EDGE_BYTES = "photo", "edge bytes"
MODELS_METHOD = "Catalogue.GetObjectModels"
REPETITIONS = 6
"""Number of crowds; one crowd sends only about 400 photos, of which 20 are slower than its p95."""
_SMOKE_FOLLOWING = Following(devices=2, seconds=4.0, unknown_share=0.05)


class CooperativePrefetching:
    """Plays both configurations, for one crowd of visitors after the other.

    Parameters
    ----------
    name : str
        Name of the experiment; it identifies the random numbers and the folder for logs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._profiles: Profiles | None = None

    def run(self, number: int, options: RunOptions, configurations: Sequence[str]) -> list[Row]:
        """Play one crowd; several configurations are played at the same time."""
        plan = Plan.of(options)
        if options.smoke:
            plan = replace(plan, following=_SMOKE_FOLLOWING)
        museum = TaughtMuseum(options, plan.museum)
        profiles = self._profiles = self._profiles or plan.profiles(museum, self._name)
        rng = options.rng(self._name, "visitors", number)  # the same for both configurations
        visits = plan.walks.visits(rng)
        folder = museum.testbed(self._name)
        session = museum.session(folder, visits, plan.following, TABLE_6_3[NETWORK], rng)
        played = session.play({name: _tiers(name, profiles) for name in configurations})
        return [
            {"devices": name, "repetition": number, **row}
            for name, one in played.items()
            for row in _rows(one)
        ]


def _tiers(configuration: str, profiles: Profiles) -> Tiers:
    edge = {"cache.profile": profiles.edge, "metrics_listen": "127.0.0.1:0"}
    device = {
        "recognizer.prefetch.enabled": True,
        "recognizer.prefetch.profile": profiles.adaptive,
    }
    if configuration == SHARING:
        device |= sharing_settings()
    return Tiers(edge, device)


def _rows(played: Played) -> list[Row]:
    """Rows of the photos, and of the counters."""
    counted = {EDGE_BYTES: played.edge_sent.get(MODELS_METHOD, 0), **played.models}
    photos: list[Row] = [
        {
            "kind": PHOTO,
            "expected": row.expected,
            "answered": row.answered,
            "answered_by": row.answered_by,
            "value": row.latency_ms,
        }
        for row in played.rows
    ]
    sums: list[Row] = [{"kind": kind, "value": value} for kind, value in counted.items()]
    return [*photos, *sums]


def sharing_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Summarise the downloads and the answers of one configuration's devices."""
    photos = [row for row in rows if row["kind"] == PHOTO]
    latencies = answered_ms(photos)

    def total(kind: str) -> int:
        return int(sum(numbers.values((row for row in rows if row["kind"] == kind), "value")))

    return {
        "edge_model_bytes": total(EDGE_BYTES),
        "list_bytes": total("list_bytes"),
        "peer_model_bytes": total("peer_bytes"),
        "wasted_model_bytes": total("wasted_bytes"),
        "rejected_models": total("rejected_models"),
        "fetched_models": total("fetched_models"),
        "models_from_peers": total("peer_models"),
        "waited_in_vain": total("waited_in_vain"),
        **{f"p{rank}_ms": round(float(np.percentile(latencies, rank)), 3) for rank in (50, 95)},
        **answer_numbers(photos),
    }


def answered_ms(rows: Sequence[StoredRow]) -> list[float]:
    """Latencies of the answered photos [ms]."""
    return numbers.values((row for row in rows if row["kind"] == PHOTO and row["answered_by"]), "value")


def latency_ratios(rows: Sequence[StoredRow]) -> dict[str, list[float]]:
    """Latency with cooperation over latency without, for each crowd."""
    crowds = numbers.nested(rows, ("repetition", "devices"), answered_ms).values()
    pairs = [(one[SHARING], one[ALONE]) for one in crowds if one.get(SHARING) and one.get(ALONE)]
    return {
        f"p{rank}": [
            round(float(np.percentile(sharing, rank) / np.percentile(alone, rank)), 4)
            for sharing, alone in pairs
        ]
        for rank in (50, 95)
    }
