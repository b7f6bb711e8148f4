"""Sessions at an operating point on the testbed: real daemons and devices, one configuration at a time.

All processes share this machine, so that devices are as fast as the edge, unlike in table 6.1: compare
configurations here, and times with the twin where it shares a machine, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearsight.experiments.framework.experiment import Row, RunOptions
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.peer_group import free_udp_port
from nearsight.experiments.rig.session import Session, Tiers
from nearsight.experiments.rig.tiers import CATALOGUE, teach_catalogue
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.studies.cachier.scale.machines import Machines, machines_of
from nearsight.experiments.studies.cachier.scale.operating_point import MEASURED, Amount, OperatingPoint
from nearsight.experiments.studies.cachier.scale.session_numbers import Usage, link_errors, session_row
from nearsight.experiments.studies.museums import dataset_of, museum_folder
from nearsight.experiments.testbed.campaign import BUILT_IN
from nearsight.experiments.testbed.running import cut_catalogue
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import photos_by_object
from nearsight.experiments.twin.session import COOPERATIVE, ONLY_CLOUD

if TYPE_CHECKING:
    import numpy as np

    from nearsight.experiments.datasets.dataset import Dataset
    from nearsight.experiments.traces.requests import PhotoRequest

MUSEUM = MuseumSettings(objects=1000, photos_per_object=2, unknown_photos=100)
SMOKE_MUSEUM = MuseumSettings(objects=50, photos_per_object=2, unknown_photos=2)
_PERIOD_S, _DEPARTURE_S = 1.0, 5.0
"""Devices that share know each other when the walk begins."""


def play_on_testbed(
    point: OperatingPoint,
    configurations: Sequence[str],
    run: int,
    options: RunOptions,
    amount: Amount,
    unknown_share: float,
) -> list[Row]:
    """Play configurations of section 6.2.3 on the same traces, one after the other.

    Parameters
    ----------
    point : OperatingPoint
        Where.
    configurations : sequence of str
        Names in `testbed.campaign.BUILT_IN`.
    run : int
        Which traces.
    options : RunOptions
        Seed, and where museums are kept.
    amount : Amount
        How long visitors are followed, and how many there are walks of.
    unknown_share : float
        Share of the photos that show what is in no catalogue.

    Returns
    -------
    list of Row
        One per configuration; see `session_numbers.session_row`.
    """
    museum = replace(SMOKE_MUSEUM if options.smoke else MUSEUM, seed=options.seed)
    dataset = dataset_of(options, museum)
    painted = museum_folder(options.museums, museum).resolve()
    folder = painted.parent.parent / "testbed" / ("scale-smoke" if options.smoke else "scale")
    teach_catalogue(painted, painted / "cloud.db", threads=2, progress=lambda _done, _of: None)
    rng = options.rng("scale", run)
    crowd = Crowd.divided(generate_visits(rng, sections=point.sections, visitors=amount.crowd), rng)
    following = Following(point.visitors, amount.seconds, unknown_share)
    traces = folder / "traces" / f"{point.key}-run{run}"
    shown = crowd.mapped(sorted(photos_by_object(dataset))[: point.classes])
    planned = _planned(crowd, following, shown, dataset, rng)
    session = Session(
        folder,
        _catalogue(painted / "cloud.db", folder, point, set(shown.values())),
        write_traces(traces, planned, rng),
        tuple(crowd.transitions(shown)),
        point.link,
        options.seed,
        counts_bytes=True,
    )
    tiers = _tiers(configurations, machines_of(replace(options, costs=MEASURED)), folder)
    cores = dict.fromkeys(("edge", "cloud"), os.cpu_count() or 1)
    rows: list[Row] = []
    for name in configurations:
        played = session.play({name: tiers[name]})[name]
        used = Usage(amount.seconds, played.cpu_s, cores, played.up_bytes, played.down_bytes)
        row = session_row(point, name, run, played.rows, used, unknown_share)
        rows.append({**row, **link_errors(played.link)})
    return rows


def _planned(
    crowd: Crowd,
    following: Following,
    shown: Mapping[str, str],
    dataset: Dataset,
    rng: np.random.Generator,
) -> Mapping[str, Sequence[PhotoRequest]]:
    """What the devices photograph."""
    unknown = [str(query.path) for query in dataset.queries if query.object_id is None]
    return follow(crowd, following, shown, photos_by_object(dataset), unknown, rng)


def _catalogue(source: Path, folder: Path, point: OperatingPoint, shown: set[str]) -> Path:
    """A database of so many classes."""
    path = folder / f"cloud-{point.classes}.db"
    folder.mkdir(parents=True, exist_ok=True)
    cut_catalogue(source, path, catalogue=CATALOGUE, keep=shown, classes=point.classes)
    return path


def _tiers(configurations: Sequence[str], machines: Machines, folder: Path) -> dict[str, Tiers]:
    """The testbed's built-in configurations, with the profiles of this machine."""
    edge_profile, device_profile = folder / "profile-edge.json", folder / "profile-device.json"
    machines.costs.edge.save(edge_profile)
    machines.costs.device.save(device_profile)
    found = {}
    for name in configurations:
        spec = BUILT_IN[name]
        edge = {"cache.profile": str(edge_profile), **_texts(spec.edge)}
        device = {**_texts(spec.device), "recognizer.prefetch.profile": str(device_profile)}
        if name == COOPERATIVE:
            device |= {
                "recognizer.peers.beacon_port": str(free_udp_port()),
                "recognizer.peers.period_s": str(_PERIOD_S),
                "recognizer.peers.departure_s": str(_DEPARTURE_S),
            }
        found[name] = Tiers(None if name == ONLY_CLOUD else edge, device)
    return found


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """As after ``--set``."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
