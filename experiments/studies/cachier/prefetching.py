"""Device prefetching and adaptive feature extraction against edge cache and cloud (dissertation, chapter 6).

Visitors walk, every device sends one photo per second while its visitor looks at something, and all requests
of a repetition are the same for all configurations: only cloud; edge cache; prefetching with 600 features per
photo; prefetching that chooses the number of features. The building reaches the cloud over the Medium network
of table 6.3; devices reach the edge directly.

As in the paper (6.2.7) the edge knows the visitors of before: four fifths of them teach it, over its own
Prediction service and before time counts, and devices follow some of the others. Devices know the offline
analysis of this machine; they start with nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.numbers import median_and_range
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.session import Session, Tiers
from nearsight.experiments.rig.tiers import teach_catalogue
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.studies.cachier.edge_profile import ProfileAmount
from nearsight.experiments.studies.cachier.museums import MUSEUM, SMOKE_MUSEUM, dataset_of, museum_folder
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import photos_by_object
from nearsight.experiments.traces.visits import read_visits_csv

if TYPE_CHECKING:
    from nearsight.experiments.datasets.dataset import Dataset

ONLY_CLOUD, EDGE_CACHE, FIXED, ADAPTIVE = (
    "only-cloud",
    "edge-cache",
    "prefetching-600",
    "prefetching-adaptive",
)
CONFIGURATIONS = (ONLY_CLOUD, EDGE_CACHE, FIXED, ADAPTIVE)
GENERATED, REAL = "generated", "real"
NETWORK = "Medium"
FIXED_FEATURES = 600
ON_DEVICE = 0.6
TENTH = 0.1
_TOGETHER = "+"
"""A smoke run plays all configurations side by side."""
_REAL_EXHIBITS = 60
"""Enough for a smoke run with the museums whose visitors were logged."""
_COLUMNS = (
    *("visitor", "number", "time_s", "late_ms", "expected", "answered", "outcome", "outcomes", "answered_by"),
    *(
        "latency_ms",
        "sent_bytes",
        "received_bytes",
        "edge_compute_ms",
        "edge_next_tier_ms",
        "cloud_compute_ms",
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    museum : MuseumSettings
        The cloud's catalogue, and photos.
    sections, exhibits_per_section, visitors : int
        Of generated visits (table 6.2, and 6.2.5).
    following : Following
        The devices.
    repetitions : int
        Each with other visitors.
    feature_counts : tuple of int
        That devices choose from.
    profile : ProfileAmount
        The offline analyses.
    """

    museum: MuseumSettings
    sections: int
    exhibits_per_section: int
    visitors: int
    following: Following
    repetitions: int
    feature_counts: tuple[int, ...]
    profile: ProfileAmount


FULL = Plan(
    MUSEUM,
    sections=3,
    exhibits_per_section=44,
    visitors=180,
    following=Following(devices=10, seconds=45.0, unknown_share=0.05),
    repetitions=2,
    feature_counts=(200, 400, 600, 800),
    profile=ProfileAmount((1, 4, 8, 16, 32), subsets=4, queries=12),
)
SMOKE = Plan(
    SMOKE_MUSEUM,
    sections=1,
    exhibits_per_section=10,
    visitors=15,
    following=Following(devices=1, seconds=3.0, unknown_share=0.05),
    repetitions=1,
    feature_counts=(600, 800),
    profile=ProfileAmount((1, 6), subsets=2, queries=6),
)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Offline analyses: of the edge, and of devices with every number of features."""

    edge: Path
    adaptive: Path


class Figure(Experiment):
    """Only cloud, edge cache, prefetching with 600 and with an adaptive number of features."""

    style: ClassVar[Any] = {"axes.grid.axis": "both"}
    name: ClassVar[str] = "prefetching"
    source: ClassVar[str] = "Cachier dissertation, 6.2.3 to 6.3"
    takes_visits: ClassVar[bool] = True

    def __init__(self) -> None:
        self._profiles: Profiles | None = None

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        traces = [GENERATED] if options.visits is None else [GENERATED, REAL]
        together = [_TOGETHER.join(CONFIGURATIONS)]
        return tuple(
            Cell(
                f"{trace}-{number}-{'all' if options.smoke else configurations}",
                {"trace": trace, "repetition": number, "configurations": configurations},
            )
            for number in range(_plan(options).repetitions)
            for trace in traces
            for configurations in (together if options.smoke else CONFIGURATIONS)
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        trace, configurations = str(cell.parameters["trace"]), str(cell.parameters["configurations"])
        number = int(cell.parameters["repetition"])
        plan = _plan(options)
        dataset = dataset_of(options, plan.museum)
        museum = museum_folder(options.museums, plan.museum).resolve()
        folder = museum.parent.parent / "testbed" / self.name
        database = museum / "cloud.db"
        teach_catalogue(museum, database, threads=2, progress=lambda _done, _of: None)
        if self._profiles is None:
            self._profiles = measure_profiles(plan, dataset, folder)
        rng = options.rng(self.name, trace, number)  # the same for all configurations
        crowd = Crowd.divided(_visits(trace, plan, options, rng), rng)
        photos = photos_by_object(dataset)
        objects = crowd.mapped(list(photos))
        unknown = [str(query.path) for query in dataset.queries if query.object_id is None]
        planned = follow(crowd, plan.following, objects, photos, unknown, rng)
        session = Session(
            folder,
            database,
            write_traces(folder / "traces", planned, rng),
            tuple(crowd.transitions(objects)),
            TABLE_6_3[NETWORK],
            options.seed,
        )
        played = session.play(
            {name: _tiers(name, self._profiles) for name in configurations.split(_TOGETHER)}
        )
        return [
            {"trace": trace, "tiers": name, "repetition": number, **_row(row)}
            for name, one in played.items()
            for row in one.rows
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``traces.<trace>.<configuration>``: medians over the repetitions."""
        groups: dict[tuple[str, str], list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["trace"], row["tiers"]].append(row)
        found: dict[str, Any] = {}
        for (trace, configuration), group in groups.items():
            found.setdefault(trace, {})[configuration] = _configuration(group)
        return {"traces": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tuple(
            target for trace, found in summary["traces"].items() for target in _targets(trace, found)
        )

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                trace,
                configuration,
                f"{one['p50_ms']['median']:.1f}",
                f"{one['p95_ms']['median']:.1f}",
                *(f"{100 * one['answered_by'][tier]:.0f} %" for tier in ("device", "edge", "cloud")),
                f"{one['recall']:.3f}",
                f"{one['precision']:.3f}",
                one["requests"],
            )
            for trace, configurations in summary["traces"].items()
            for configuration, one in configurations.items()
        ]
        columns = ("visitors", "configuration", "p50 ms", "p95 ms", "device", "edge", "cloud")
        return (*columns, "recall", "precision", "requests"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.cachier.prefetching_picture import draw  # noqa: PLC0415

        return draw(results)


def _tiers(configuration: str, profiles: Profiles) -> Tiers:
    edge = None if configuration == ONLY_CLOUD else {"cache.profile": str(profiles.edge)}
    if configuration in {ONLY_CLOUD, EDGE_CACHE}:
        return Tiers(edge, {"recognizer.prefetch.enabled": "false"})
    device = {
        "recognizer.prefetch.enabled": "true",
        "recognizer.prefetch.profile": str(profiles.adaptive),
        "recognizer.prefetch.features": str(FIXED_FEATURES if configuration == FIXED else 0),
    }
    return Tiers(edge, device)


def measure_profiles(plan: Plan, dataset: Dataset, folder: Path) -> Profiles:
    """The offline analyses of this machine, for the edge (3.3.1) and for devices (4.5.2), from the same rows.

    Devices and edge are the same machine here, so the edge uses the curve of 800 features.
    """
    from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
    from nearsight.experiments.profiling.device import analyse_device  # noqa: PLC0415

    settings = RecognitionSettings()
    analysis = analyse_device(
        dataset,
        settings,
        plan.feature_counts,
        lambda _objects: plan.profile.plan(plan.museum.seed),
        time.time(),
        lambda _stage, _steps: lambda _done: None,
    )
    profiles = {one.query_features: one for one in analysis.profile.profiles}
    folder.mkdir(parents=True, exist_ok=True)
    found = Profiles(*(folder / f"profile-{name}.json" for name in ("edge", "adaptive")))
    profiles[settings.query_features].save(found.edge)
    analysis.profile.save(found.adaptive)
    return found


def _plan(options: RunOptions) -> Plan:
    plan = SMOKE if options.smoke else FULL
    if options.smoke and options.visits is not None:
        plan = replace(plan, museum=replace(plan.museum, objects=_REAL_EXHIBITS))
    return replace(plan, museum=replace(plan.museum, seed=options.seed))


def _visits(trace: str, plan: Plan, options: RunOptions, rng: np.random.Generator) -> Sequence[Any]:
    if trace == REAL and options.visits is not None:
        return read_visits_csv(options.visits)
    return generate_visits(
        rng,
        sections=plan.sections,
        exhibits_per_section=plan.exhibits_per_section,
        visitors=plan.visitors,
    )


def _row(row: RequestRow) -> Row:
    values = asdict(row)
    return {name: values[name] for name in _COLUMNS}


def _configuration(rows: Sequence[StoredRow]) -> dict[str, Any]:
    by_repetition: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        by_repetition[row["repetition"]].append(row)
    latencies = [
        [float(row["latency_ms"]) for row in group if row["answered_by"]] for group in by_repetition.values()
    ]
    relevant = [row for row in rows if row["expected"]]
    named = [row for row in rows if row["answered"]]
    correct = sum(row["answered"] == row["expected"] for row in relevant)
    return {
        **{
            f"p{percent}_ms": median_and_range([float(np.percentile(one, percent)) for one in latencies])
            for percent in (50, 95)
        },
        "answered_by": {
            tier: round(float(np.mean([row["answered_by"] == tier for row in rows])), 4)
            for tier in ("device", "edge", "cloud")
        },
        "recall": round(correct / len(relevant), 4),
        "precision": round(correct / max(1, len(named)), 4),
        "wrong": len(named) - correct,
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
        "sent_late_p99_ms": round(float(np.percentile([float(row["late_ms"]) for row in rows], 99)), 2),
        "sent_bytes": sum(int(row["sent_bytes"]) for row in rows),
    }


def _targets(trace: str, found: Mapping[str, Any]) -> list[Target]:
    cloud = found[ONLY_CLOUD]
    targets = []
    for name in (FIXED, ADAPTIVE):
        one = found[name]
        share = one["answered_by"]["device"]
        ratio = one["p50_ms"]["median"] / cloud["p50_ms"]["median"]
        recall, precision = (one[key] - cloud[key] for key in ("recall", "precision"))
        targets += [
            Target(f"{trace}, {name}: answered on the device, at least 0.60", share, share >= ON_DEVICE),
            Target(f"{trace}, {name}: p50 over only-cloud's, at most 0.10", ratio, ratio <= TENTH),
            Target(f"{trace}, {name}: recall minus only-cloud's, not below 0", recall, recall >= 0),
            Target(f"{trace}, {name}: precision minus only-cloud's, not below 0", precision, precision >= 0),
        ]
    pairs = zip(found[ADAPTIVE]["p50_ms"]["each"], found[FIXED]["p50_ms"]["each"], strict=True)
    faster = float(np.median([adaptive / fixed for adaptive, fixed in pairs]))
    text = f"{trace}: p50 of adaptive extraction over that of 600 features, below 1"
    return [*targets, Target(text, faster, faster < 1)]
