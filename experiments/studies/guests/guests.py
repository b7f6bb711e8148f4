"""What an edge gains by looking ahead: guests while nobody asks, and a bounded prior (beyond chapter 3).

Real daemons. Two visitors walk, each sends one photo per second while looking at something; their devices
cache nothing, so that every photo reaches the edge. With the paper's classifier every cached object costs
time, so the edge holds the popular ones, and the first photo of another exhibit is a miss, unless it is a
guest: an object that the Markov model expects next, fetched while nobody asked. Guests that were asked for
are useful, those that left without are wasted.

A new edge, which knows nothing, is asked by the same visitors with the dissertation's prior (one request per
object of the catalogue) and with the bounded one (`cache.prior_mass`).

Everything is reported as it comes out: the issue asks for an account, not for a gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
from nearsight.experiments.framework.numbers import mean_and_spread, mean_in_words
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.session import Played, Session, Tiers
from nearsight.experiments.rig.tiers import teach_catalogue
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.studies.cachier.edge_profile import EdgeProfiles, ProfileAmount
from nearsight.experiments.studies.cachier.fig3_2 import LSH, OURS, PIPELINES
from nearsight.experiments.studies.cachier.museums import dataset_of, museum_folder, museum_of
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import photos_by_object

NETWORK = "Medium"
WITHOUT, GUESTS, PRIOR, BOUNDED_PRIOR = "no guests", "guests", "new edge, paper's prior", "new edge"
CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    WITHOUT: {"prefetch.objects": "0"},
    GUESTS: {},
    PRIOR: {"cache.prior_mass": "inf"},
    BOUNDED_PRIOR: {},
}
"""Settings of the edge, beside its defaults."""
UNTAUGHT = frozenset({PRIOR, BOUNDED_PRIOR})


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    sections, exhibits_per_section, visitors : int
        Of generated visits; four fifths of the visitors teach the edge.
    following : Following
        The devices.
    repetitions : int
        Each with other visitors.
    backends : mapping of str to tuple of str
        Classifiers of the edge, and the configurations measured with each.
    profile : ProfileAmount
        The offline analysis.
    """

    sections: int
    exhibits_per_section: int
    visitors: int
    following: Following
    repetitions: int
    backends: Mapping[str, tuple[str, ...]]
    profile: ProfileAmount


FULL = Plan(
    sections=3,
    exhibits_per_section=44,
    visitors=180,
    following=Following(devices=2, seconds=60.0, unknown_share=0.0),
    repetitions=3,
    backends={LSH: tuple(CONFIGURATIONS), OURS: (WITHOUT, GUESTS)},
    profile=ProfileAmount((1, 25, 50, 100, 200), subsets=2, queries=12),
)
SMOKE = Plan(
    sections=1,
    exhibits_per_section=10,
    visitors=15,
    following=Following(devices=1, seconds=4.0, unknown_share=0.0),
    repetitions=1,
    backends={LSH: (WITHOUT, GUESTS)},
    profile=ProfileAmount((1, 6, 12), subsets=2, queries=3),
)


class Figure(Experiment):
    """What an edge gains by fetching ahead while nobody asks, and by a bounded prior."""

    style: ClassVar[Any] = {"axes.grid.axis": "x"}
    name: ClassVar[str] = "guests"
    source: ClassVar[str] = "beyond the Cachier dissertation's chapter 3"

    def __init__(self) -> None:
        self._profiles = EdgeProfiles()

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        plan = SMOKE if options.smoke else FULL
        return tuple(
            Cell(f"{number}-{backend}-{place}", {"repetition": number, "backend": backend, "part": part})
            for number in range(plan.repetitions)
            for backend, configurations in plan.backends.items()
            for place, part in enumerate(_parts(configurations, together=options.smoke))
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        number, backend = int(cell.parameters["repetition"]), str(cell.parameters["backend"])
        museum = museum_folder(options.museums, museum_of(options)).resolve()
        session = self._session(options, museum, number)
        profile = self._profiles.of(
            museum / f"profile-{self.name}-{backend}.json",
            PIPELINES[backend],
            dataset_of(options, museum_of(options)),
            (SMOKE if options.smoke else FULL).profile,
            options.seed,
        )
        played = session.play(
            {name: _tiers(backend, name, profile) for name in str(cell.parameters["part"]).split(_TOGETHER)}
        )
        return [
            {"backend": backend, "tiers": name, "repetition": number, **row}
            for name, one in played.items()
            for row in photo_rows(one)
        ]

    def _session(self, options: RunOptions, museum: Path, number: int) -> Session:
        """The visitors of a repetition, the same for all configurations."""
        plan = SMOKE if options.smoke else FULL
        dataset = dataset_of(options, museum_of(options))
        teach_catalogue(museum, museum / "cloud.db", threads=2, progress=lambda _done, _of: None)
        rng = options.rng(self.name, number)
        visits = generate_visits(
            rng,
            sections=plan.sections,
            exhibits_per_section=plan.exhibits_per_section,
            visitors=plan.visitors,
        )
        crowd = Crowd.divided(visits, rng)
        photos = photos_by_object(dataset)
        objects = crowd.mapped(list(photos))
        planned = follow(crowd, plan.following, objects, photos, [], rng)
        folder = museum.parent.parent / "testbed" / self.name
        return Session(
            folder,
            museum / "cloud.db",
            write_traces(folder / "traces", planned, rng),
            tuple(crowd.transitions(objects)),
            TABLE_6_3[NETWORK],
            options.seed,
        )

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``backends.<backend>.<configuration>``; latencies: mean and spread over the repetitions."""
        groups: dict[tuple[str, str], dict[str, list[StoredRow]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            groups[row["backend"], row["tiers"]][row["repetition"]].append(row)
        found: dict[str, Any] = {}
        for (backend, configuration), repetitions in groups.items():
            found.setdefault(backend, {})[configuration] = _configuration(list(repetitions.values()))
        return {"backends": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """None: what comes out is reported as it is."""
        del summary
        return ()

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                backend,
                configuration,
                mean_in_words(one["mean_ms"], 1),
                mean_in_words(one["p50_ms"], 1),
                f"{100 * one['edge_share']:.0f} %",
                f"{100 * one['first_photos']['edge_share']:.0f} %",
                mean_in_words(one["first_photos"]["mean_ms"], 1),
                one["guests"]["entered"],
                one["guests"]["useful"],
                one["guests"]["wasted"],
                one["requests"],
            )
            for backend, configurations in summary["backends"].items()
            for configuration, one in configurations.items()
        ]
        columns = ("backend", "configuration", "mean ms", "p50 ms", "at the edge")
        first = ("first photos at the edge", "their mean ms")
        return (*columns, *first, "guests", "useful", "wasted", "requests"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.guests.guests_picture import draw  # noqa: PLC0415  measuring draws nothing

        return draw(results)


_TOGETHER = "+"


def _parts(configurations: Sequence[str], *, together: bool) -> Sequence[str]:
    """Configurations are measured one by one; a smoke run plays them side by side."""
    return [_TOGETHER.join(configurations)] if together else configurations


def _tiers(backend: str, configuration: str, profile: Path) -> Tiers:
    pipeline = {f"recognition.{key}": str(value) for key, value in PIPELINES[backend].items()}
    edge = {**pipeline, "cache.profile": str(profile), **CONFIGURATIONS[configuration]}
    device = {"recognizer.prefetch.enabled": "false"}
    return Tiers(edge, device, taught=configuration not in UNTAUGHT)


def photo_rows(played: Played) -> list[Row]:
    """One per photo; the account of the guests stands in each."""
    rows: list[Row] = []
    before: dict[str, str] = {}
    for row in played.rows:
        guests = played.guests
        rows.append(
            {
                "visitor": row.visitor,
                "number": row.number,
                "expected": row.expected,
                "first": int(before.get(row.visitor) != row.expected),
                "answered": row.answered,
                "answered_by": row.answered_by,
                "latency_ms": row.latency_ms,
                "late_ms": row.late_ms,
                "guests_entered": guests.entered if guests else 0,
                "guests_useful": guests.useful if guests else 0,
                "guests_wasted": guests.wasted if guests else 0,
            }
        )
        before[row.visitor] = row.expected
    return rows


def _configuration(repetitions: Sequence[Sequence[StoredRow]]) -> dict[str, Any]:
    rows = [row for repetition in repetitions for row in repetition]
    first = [[row for row in repetition if int(row["first"])] for repetition in repetitions]
    named = [row for row in rows if row["answered"]]
    return {
        "mean_ms": mean_and_spread([_mean_ms(repetition) for repetition in repetitions]),
        "p50_ms": mean_and_spread([float(np.median(_latencies(one))) for one in repetitions]),
        "edge_share": _edge_share(rows),
        "first_photos": {
            "requests": sum(map(len, first)),
            "edge_share": _edge_share([row for repetition in first for row in repetition]),
            "mean_ms": mean_and_spread([_mean_ms(repetition) for repetition in first]),
        },
        "guests": {
            name: sum(int(repetition[0][f"guests_{name}"]) for repetition in repetitions)
            for name in ("entered", "useful", "wasted")
        },
        "wrong": sum(row["answered"] != row["expected"] for row in named),
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
    }


def _latencies(rows: Sequence[StoredRow]) -> list[float]:
    return [float(row["latency_ms"]) for row in rows if row["answered_by"]]


def _mean_ms(rows: Sequence[StoredRow]) -> float:
    return float(np.mean(_latencies(rows)))


def _edge_share(rows: Sequence[StoredRow]) -> float:
    return round(float(np.mean([row["answered_by"] == "edge" for row in rows])), 4)
