"""Cooperative prefetching on a museum's visitors: what devices download from the edge, alone and sharing.

Cloud, edge and devices are the real ones, as in the experiment ``prefetching``; the devices prefetch with an
adaptive number of features. The two configurations differ in one thing: whether the devices share. What the
edge sent in answers to requests for models is what the edge itself counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nearsight.experiments.framework.experiment import Row, RunOptions
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.peer_group import free_udp_port
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.session import Played, Session, Tiers
from nearsight.experiments.rig.tiers import teach_catalogue
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.studies.cachier.museums import dataset_of, museum_folder
from nearsight.experiments.studies.cachier.prefetching import (
    FULL,
    NETWORK,
    SMOKE,
    Plan,
    Profiles,
    measure_profiles,
)
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import photos_by_object

if TYPE_CHECKING:
    import numpy as np

ALONE, SHARING = "alone", "sharing"
PHOTO, EDGE_BYTES = "photo", "edge bytes"
MODELS_METHOD = "Catalogue.GetObjectModels"
REPETITIONS = 6
"""A crowd is 400 photos, and its p95 twenty of them."""
_SMOKE_FOLLOWING = Following(devices=2, seconds=4.0, unknown_share=0.05)
_PERIOD_S, _DEPARTURE_S = 1.0, 5.0
"""Devices know each other when the walk begins, so how soon they find each other is no part of this."""


@dataclass(slots=True)
class CooperativePrefetching:
    """Both configurations, for one crowd of visitors after the other.

    Attributes
    ----------
    name : str
        Of the experiment: its random numbers, and where logs go.
    """

    name: str
    _profiles: Profiles | None = None

    def run(self, number: int, options: RunOptions, configurations: Sequence[str]) -> list[Row]:
        """One crowd; several configurations are run side by side."""
        plan = _plan(options)
        dataset = dataset_of(options, plan.museum)
        museum = museum_folder(options.museums, plan.museum).resolve()
        folder = museum.parent.parent / "testbed" / self.name
        teach_catalogue(museum, museum / "cloud.db", threads=2, progress=lambda _done, _of: None)
        if self._profiles is None:
            self._profiles = measure_profiles(plan, dataset, folder)
        rng = options.rng(self.name, "visitors", number)  # the same for both
        crowd = Crowd.divided(_visits(plan, rng), rng)
        photos = photos_by_object(dataset)
        objects = crowd.mapped(list(photos))
        unknown = [str(query.path) for query in dataset.queries if query.object_id is None]
        planned = follow(crowd, plan.following, objects, photos, unknown, rng)
        session = Session(
            folder,
            museum / "cloud.db",
            write_traces(folder / "traces", planned, rng),
            tuple(crowd.transitions(objects)),
            TABLE_6_3[NETWORK],
            options.seed,
        )
        played = session.play({name: _tiers(name, self._profiles) for name in configurations})
        return [row for name, one in played.items() for row in _rows(name, number, one)]


def _plan(options: RunOptions) -> Plan:
    plan = replace(SMOKE, following=_SMOKE_FOLLOWING) if options.smoke else FULL
    return replace(plan, museum=replace(plan.museum, seed=options.seed))


def _visits(plan: Plan, rng: np.random.Generator) -> Sequence[Any]:
    return generate_visits(
        rng,
        sections=plan.sections,
        exhibits_per_section=plan.exhibits_per_section,
        visitors=plan.visitors,
    )


def _tiers(configuration: str, profiles: Profiles) -> Tiers:
    edge = {"cache.profile": str(profiles.edge), "metrics_listen": "127.0.0.1:0"}
    device = {
        "recognizer.prefetch.enabled": "true",
        "recognizer.prefetch.profile": str(profiles.adaptive),
    }
    if configuration == SHARING:
        device |= {
            "recognizer.peers.enabled": "true",
            "recognizer.peers.beacon_port": str(free_udp_port()),
            "recognizer.peers.period_s": str(_PERIOD_S),
            "recognizer.peers.departure_s": str(_DEPARTURE_S),
        }
    return Tiers(edge, device)


def _rows(configuration: str, number: int, played: Played) -> list[Row]:
    photos = [_row(configuration, number, one) for one in played.rows]
    sums: Mapping[str, int] = {EDGE_BYTES: played.edge_sent.get(MODELS_METHOD, 0), **played.models}
    counted: list[Row] = [
        {"devices": configuration, "repetition": number, "kind": kind, "value": value}
        for kind, value in sums.items()
    ]
    return [*photos, *counted]


def _row(configuration: str, number: int, row: RequestRow) -> Row:
    return {
        "devices": configuration,
        "repetition": number,
        "kind": PHOTO,
        "expected": row.expected,
        "answered": row.answered,
        "answered_by": row.answered_by,
        "value": row.latency_ms,
    }
