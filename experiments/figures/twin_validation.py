"""The twin against the testbed: the same traces on real daemons and on the virtual clock.

A first point fits the twin's costs (`simulation/fitting.py`). Then both run the baseline of table 6.2 and two
other points, more visitors and a slow network, each with visitors of its own: only cloud, load-balanced edge,
and the full system (devices that prefetch, with adaptive feature extraction, before a bounded edge).

Each session is played several times: how far the testbed is from itself says how well the twin can be known
to agree with it. A session that was disturbed is played again, and nothing is fitted to one (`testbed/
conditions.py`). A tenth of the photos show what nobody knows. With a twentieth, the 95th percentile would be
where the distribution has a gap, between the photos that a tier knows and those that go on to the next one,
and would jump across it with every second photo that is late.

All processes of the testbed share the cores of one machine, and so do the nodes of the twin. What the pace
of the machine is during a session, the twin is told.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearsight.experiments.figures.experiment import Cell, Experiment, Row, RunOptions, StoredRow, Target
from nearsight.experiments.figures.museums import dataset_of, museum_folder
from nearsight.experiments.figures.prefetching import FULL as PREFETCHING_FULL
from nearsight.experiments.figures.prefetching import SMOKE as PREFETCHING_SMOKE
from nearsight.experiments.figures.prefetching import Plan, measure_profiles
from nearsight.experiments.figures.replay_session import Session, Tiers
from nearsight.experiments.figures.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.simulation.cost_model import CostModel
from nearsight.experiments.simulation.fitting import fit
from nearsight.experiments.simulation.photo_book import measure_photos
from nearsight.experiments.simulation.session import (
    ADAPTIVE,
    CONFIGURATIONS,
    LOAD_BALANCED,
    ONLY_CLOUD,
    Hardware,
    TwinSession,
)
from nearsight.experiments.simulation.visitors import traced
from nearsight.experiments.testbed.conditions import Conditions, Watch
from nearsight.experiments.testbed.link import LinkShape
from nearsight.experiments.testbed.networks import TABLE_6_3
from nearsight.experiments.testbed.plan import photos_by_object
from nearsight.experiments.testbed.rows import RequestRow
from nearsight.experiments.testbed.teaching import teach_catalogue
from nearsight.experiments.testbed.tiers import CATALOGUE
from nearsight.experiments.traces.movement import generate_visits

if TYPE_CHECKING:
    from nearsight.common.recognition.models import ObjectModel
    from nearsight.experiments.datasets.dataset import Dataset

TESTBED, TWIN = "testbed", "twin"
CONFIGURATIONS_COMPARED = (ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE)
FIT = "fit"
MOST_ERROR = 0.15
MOST_POINTS = 0.03
BASELINE = LinkShape(rtt_ms=30.0, up_mbps=15.0, down_mbps=15.0)
"""Table 6.2."""
_SMOKE_FOLLOWING = Following(devices=2, seconds=3.0, unknown_share=0.05)
_COLUMNS = (
    *("visitor", "number", "time_s", "late_ms", "expected", "answered", "outcome", "answered_by"),
    *("latency_ms", "sent_bytes", "edge_queue_ms", "edge_compute_ms", "edge_next_tier_ms"),
    *("cloud_queue_ms", "cloud_compute_ms"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """Where both are compared."""

    visitors: int
    network: LinkShape


POINTS: Mapping[str, Point] = {
    FIT: Point(4, TABLE_6_3["Medium"]),
    "baseline": Point(5, BASELINE),
    "10 visitors": Point(10, BASELINE),
    "slow network": Point(5, TABLE_6_3["Slow"]),
}
REPETITIONS = 2
_SECONDS = 25.0
_UNKNOWN_SHARE = 0.1
_TWINS = 4
"""Runs of the twin with other random times; their photos count together."""
_BUILT = (5, 10, 20, 40, 132, 400)
"""Sizes of the snapshots whose building is timed."""
_BUILDS, _NO_INDEX = 3, 4
"""Times that each is built; so few models are not indexed."""
_EDGE_SIZES = (1, 8, 33, 66, 132, 264, 400)
"""Objects among which lookups are timed."""
_LATEST_MS = 30.0
"""A device that sends its photos later than that has no processor time."""
_SMOKE_POINTS = (FIT, "baseline")
_NO_MACHINE = Conditions(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Played:
    """One session of one configuration."""

    tiers: str
    repetition: int
    rows: Sequence[RequestRow]
    conditions: Conditions


class Figure(Experiment):
    """Errors of the twin."""

    name: ClassVar[str] = "twin-validation"

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        points = _SMOKE_POINTS if options.smoke else tuple(POINTS)
        return tuple(Cell(point.replace(" ", "-"), {"point": point}) for point in points)

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        name = str(cell.parameters["point"])
        bench = _Bench(options)
        session, twin = bench.sessions(name, POINTS[name])
        played = bench.together(session) if options.smoke else bench.one_by_one(name, session)
        if name == FIT:
            bench.fit(twin, played)
        simulated = _simulate(_as_fast(twin, bench.costs(), played), _TWINS)
        return [
            row
            for source, sessions in ((TESTBED, played), (TWIN, simulated))
            for one in sessions
            for row in _rows(name, source, one)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``points.<point>.<configuration>``: numbers of testbed and twin, and the errors of the twin.

        ``itself`` is how far the repetitions of the testbed are from each other.
        """
        groups: dict[tuple[str, str, str], list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["point"], row["tiers"], row["source"]].append(row)
        found: dict[str, Any] = {}
        for point, tiers in dict.fromkeys((point, tiers) for point, tiers, _ in groups):
            both = {source: _numbers(groups[point, tiers, source]) for source in (TESTBED, TWIN)}
            found.setdefault(point, {})[tiers] = {
                **both,
                "errors": _errors(both),
                "itself": _from_itself(groups[point, tiers, TESTBED]),
            }
        return {"points": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tuple(
            target
            for point, configurations in summary["points"].items()
            if point != FIT
            for tiers, one in configurations.items()
            for target in _targets(f"{point}, {tiers}", one["errors"], one["itself"])
        )

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = []
        for point, configurations in summary["points"].items():
            for tiers, one in configurations.items():
                real, twin, errors = one[TESTBED], one[TWIN], one["errors"]
                rows.append(
                    (
                        point,
                        tiers,
                        *(f"{real[key]:.1f} / {twin[key]:.1f}" for key in ("p50_ms", "p95_ms")),
                        *(f"{100 * errors[key]:+.0f} %" for key in ("p50", "p95")),
                        f"{100 * one['itself']['p50']:.0f}, {100 * one['itself']['p95']:.0f} %",
                        *(f"{100 * real[tier]:.0f} / {100 * twin[tier]:.0f}" for tier in ("device", "edge")),
                        f"{real['recall']:.3f} / {twin['recall']:.3f}",
                        real["requests"],
                    )
                )
        columns = ("point", "configuration", "p50 ms", "p95 ms", "error p50", "error p95", "testbed itself")
        return (*columns, "device %", "edge %", "recall", "photos"), rows

    def plot(self, folder: Path) -> Path:  # noqa: D102
        from nearsight.experiments.figures.twin_validation_picture import draw  # noqa: PLC0415

        return draw(folder, f"{self.name}.png")


class _Bench:
    """Museum, profiles and traces of a run."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._plan: Plan = PREFETCHING_SMOKE if options.smoke else PREFETCHING_FULL
        self._dataset: Dataset = dataset_of(options, self._plan.museum)
        museum = museum_folder(options.museums, self._plan.museum).resolve()
        self._folder = museum.parent.parent / "testbed" / ("twin-smoke" if options.smoke else "twin")
        self._database = museum / "cloud.db"
        teach_catalogue(museum, self._database, threads=2, progress=lambda _done, _of: None)
        self.costs_path = self._folder / "costs.json"
        self._edge_profile = self._folder / "profile-edge.json"
        self._device_profile = self._folder / "profile-adaptive.json"

    def sessions(self, name: str, point: Point) -> tuple[Session, TwinSession]:
        """The same traces for both."""
        options, plan = self._options, self._plan
        rng = options.rng(Figure.name, name)
        visits = generate_visits(
            rng,
            sections=plan.sections,
            exhibits_per_section=plan.exhibits_per_section,
            visitors=plan.visitors,
        )
        crowd = Crowd.divided(visits, rng)
        photos = photos_by_object(self._dataset)
        objects = crowd.mapped(list(photos))
        unknown = [str(query.path) for query in self._dataset.queries if query.object_id is None]
        following = _SMOKE_FOLLOWING if options.smoke else Following(point.visitors, _SECONDS, _UNKNOWN_SHARE)
        planned = follow(crowd, following, objects, photos, unknown, rng)
        traces = write_traces(self._folder / "traces" / name.replace(" ", "-"), planned, rng)
        transitions = tuple(crowd.transitions(objects))
        session = Session(self._folder, self._database, traces, transitions, point.network, options.seed)
        shown = {Path(one.image_path): one.object_id for asked in planned.values() for one in asked}
        models = self._models()
        if not self._edge_profile.is_file() or name == FIT:
            measure_profiles(plan, self._dataset, self._folder)
            self._measure_edge()
        twin = TwinSession(
            tuple(models),
            traced(traces, self._seen(shown, models)),
            self._measured_profiles(models),
            point.network,
            transitions,
            hardware=Hardware(shared=os.cpu_count() or 1),
            seed=options.seed,
        )
        return session, twin

    def _measure_edge(self) -> None:
        """An offline analysis up to the whole catalogue: the cloud's lookups follow from it, too."""
        from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
        from nearsight.experiments.figures.offline_analysis import nothing  # noqa: PLC0415
        from nearsight.experiments.profiling import (  # noqa: PLC0415
            ProfilingPlan,
            fit_profile,
            measure,
            prepare,
        )

        if self._options.smoke:
            return
        settings, plan = RecognitionSettings(), self._plan
        prepared = prepare(self._dataset, settings, nothing)
        queries = plan.profile_queries
        profiling = ProfilingPlan(
            _EDGE_SIZES, plan.profile_subsets, queries, queries, seed=self._options.seed
        )
        rows = measure(prepared, profiling, settings, nothing)
        fit_profile(rows, prepared, settings, time.time()).save(self._edge_profile)

    def _models(self) -> dict[str, ObjectModel]:
        from nearsight.cloud.store import CatalogueStore  # noqa: PLC0415

        with CatalogueStore(self._database, create=False) as store:
            changes = store.changes_since(CATALOGUE, 0)
        return {model.object_id: model for model in changes.written}

    def _seen(self, shown: Mapping[Path, str], models: Mapping[str, ObjectModel]) -> Mapping[Path, Any]:
        from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415

        return measure_photos(shown, models.values(), self._plan.feature_counts, RecognitionSettings())

    def _measured_profiles(self, models: Mapping[str, ObjectModel]) -> CostModel:
        from nearsight.common.caching.device_profile import DeviceProfile  # noqa: PLC0415
        from nearsight.common.caching.profile import CacheProfile  # noqa: PLC0415

        features = np.median([sum(map(len, model.views)) for model in models.values()])
        return CostModel(
            edge=CacheProfile.load(self._edge_profile),
            device=DeviceProfile.load(self._device_profile),
            model_features=round(float(features)),
            build_ms=((_NO_INDEX, 0.0), *_build_ms(list(models.values()))),
        )

    def tiers(self) -> dict[str, Tiers]:
        """The configurations on the testbed, with the settings that the twin's have."""
        edge = {"cache.profile": str(self._edge_profile)}
        alone = {"recognizer.prefetch.enabled": "false"}
        full = {
            "recognizer.prefetch.enabled": "true",
            "recognizer.prefetch.profile": str(self._device_profile),
        }
        return {
            ONLY_CLOUD: Tiers(None, alone),
            LOAD_BALANCED: Tiers({**edge, "multi_user": "load-balanced"}, alone),
            ADAPTIVE: Tiers({**edge, "multi_user": "bounded"}, full),
        }

    def together(self, session: Session) -> list[_Played]:
        """All configurations side by side, once: for a smoke run, which judges nothing."""
        played = session.play(self.tiers())
        return [_Played(name, 1, one.rows, _NO_MACHINE) for name, one in played.items()]

    def one_by_one(self, point: str, session: Session) -> list[_Played]:
        """Every configuration with the machine for itself, some times."""
        watch, played = Watch(), []
        for repetition in range(1, REPETITIONS + 1):
            for name, tiers in self.tiers().items():
                rows, conditions = watch.undisturbed(
                    f"{point}, {name}",
                    lambda name=name, tiers=tiers: session.play({name: tiers})[name].rows,  # type: ignore[misc]
                    _was_late,
                )
                played.append(_Played(name, repetition, rows, conditions))
        return played

    def costs(self) -> CostModel:
        """As fitted."""
        return CostModel.load(self.costs_path)

    def fit(self, twin: TwinSession, played: Sequence[_Played]) -> None:
        """Fit the costs to this point, and keep them for the others."""
        measured = _by_configuration(played)
        origin = "testbed, " + ", ".join(f"{len(rows)} photos {name}" for name, rows in measured.items())
        paces = [one.conditions.pace_ms for one in played]

        def simulate(tried: CostModel) -> Mapping[str, Sequence[RequestRow]]:
            return _by_configuration(_simulate(replace(twin, costs=tried), 1))

        fitted = fit(twin.costs, measured, simulate, origin=origin)
        fitted.model_copy(update={"pace_ms": float(np.mean(paces))}).save(self.costs_path)


def _build_ms(models: Sequence[ObjectModel]) -> tuple[tuple[int, float], ...]:
    """What indexing takes, by the number of models; CPU time, as of profiles."""
    from nearsight.common.recognition.object_recognizer import ObjectRecognizer  # noqa: PLC0415

    found = []
    for size in sorted({min(size, len(models)) for size in _BUILT}):
        times = []
        for _ in range(_BUILDS):
            started_s = time.thread_time()
            ObjectRecognizer.build(models[:size])
            times.append((time.thread_time() - started_s) * 1e3)
        found.append((size, float(np.median(times))))
    return tuple(found)


def _was_late(rows: Sequence[RequestRow]) -> str:
    """Photos that were not sent in time."""
    late_ms = float(np.percentile([row.late_ms for row in rows], 99))
    return f"photos were sent {late_ms:.0f} ms late" if late_ms > _LATEST_MS else ""


def _as_fast(twin: TwinSession, costs: CostModel, played: Sequence[_Played]) -> TwinSession:
    """The twin of the machine at the pace that it had."""
    pace_ms = float(np.mean([one.conditions.pace_ms for one in played]))
    slowness = pace_ms / costs.pace_ms if pace_ms and costs.pace_ms else 1.0
    hardware = replace(
        twin.hardware, cloud_slowness=slowness, edge_slowness=slowness, device_slowness=slowness
    )
    return replace(twin, costs=costs, hardware=hardware)


def _simulate(twin: TwinSession, times: int) -> list[_Played]:
    return [
        _Played(name, number, replace(twin, seed=twin.seed + number - 1).play(name, tiers).rows, _NO_MACHINE)
        for number in range(1, times + 1)
        for name, tiers in CONFIGURATIONS.items()
        if name in CONFIGURATIONS_COMPARED
    ]


def _by_configuration(played: Sequence[_Played]) -> dict[str, list[RequestRow]]:
    found: dict[str, list[RequestRow]] = {name: [] for name in CONFIGURATIONS_COMPARED}
    for one in played:
        found[one.tiers].extend(one.rows)
    return found


def _rows(point: str, source: str, one: _Played) -> list[Row]:
    labels: Row = {"point": point, "source": source, "tiers": one.tiers, "repetition": one.repetition}
    under: Row = {"pace_ms": round(one.conditions.pace_ms, 3), "others": round(one.conditions.others, 4)}
    found: list[Row] = []
    for row in one.rows:
        values = asdict(row)
        found.append({**labels, **{name: values[name] for name in _COLUMNS}, **under})
    return found


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    latencies = [float(row["latency_ms"]) for row in rows if row["answered_by"]]
    relevant = [row for row in rows if row["expected"]]
    p50, p95 = np.percentile(latencies, [50, 95]) if latencies else (0.0, 0.0)
    late = np.percentile([float(row["late_ms"]) for row in rows], 99)
    return {
        "p50_ms": round(float(p50), 3),
        "p95_ms": round(float(p95), 3),
        **{
            tier: round(float(np.mean([row["answered_by"] == tier for row in rows])), 4)
            for tier in ("device", "edge", "cloud")
        },
        "recall": round(
            sum(row["answered"] == row["expected"] for row in relevant) / max(1, len(relevant)), 4
        ),
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
        "sent_bytes": sum(int(row["sent_bytes"]) for row in rows),
        "sent_late_p99_ms": round(float(late), 2),
    }


def _errors(both: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    real, twin = both[TESTBED], both[TWIN]
    relative = {
        name: round(twin[f"{name}_ms"] / real[f"{name}_ms"] - 1.0, 4) if real[f"{name}_ms"] else 0.0
        for name in ("p50", "p95")
    }
    return {**relative, **{tier: round(twin[tier] - real[tier], 4) for tier in ("device", "edge")}}


def _from_itself(rows: Sequence[StoredRow]) -> dict[str, float]:
    """How far the repetitions of the testbed are from each other: the largest over the least."""
    latencies: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["answered_by"]:
            latencies[row.get("repetition", "")].append(float(row["latency_ms"]))
    found = {}
    for name, percentile in (("p50", 50), ("p95", 95)):
        values = [float(np.percentile(some, percentile)) for some in latencies.values()]
        found[name] = round(max(values) / min(values) - 1.0, 4) if values else 0.0
    return found


def _targets(where: str, errors: Mapping[str, float], itself: Mapping[str, float]) -> list[Target]:
    return [
        *(
            Target(
                f"{where}: error of {name}, at most 0.15",
                errors[name],
                abs(errors[name]) <= MOST_ERROR,
                f"two runs of the testbed differ by {100 * itself[name]:.0f} %",
            )
            for name in ("p50", "p95")
        ),
        *(
            Target(
                f"{where}: share answered by the {tier}, twin minus testbed, at most 0.03",
                errors[tier],
                abs(errors[tier]) <= MOST_POINTS,
            )
            for tier in ("device", "edge")
        ),
    ]
