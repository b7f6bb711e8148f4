"""Gain of prefetching at an idle edge, and of a bounded prior (beyond chapter 3).

Real daemons. Two visitors walk through the museum. Each sends one photo per second while looking at an
exhibit. Their devices cache nothing, so that every photo reaches the edge. With the paper's classifier every
cached object costs lookup time, so the edge holds only the popular objects. The first photo of another
exhibit is then a miss, unless the edge prefetched the object: the Markov model predicted it, and its model
was fetched while the edge had no requests. Prefetched objects that were requested are useful. Those evicted
without a request are wasted.

The same visitors also send their photos to a new edge without any history, once with the dissertation's prior
(one request per object of the catalogue) and once with the bounded prior (`cache.prior_mass`).

There are no targets: the experiment shows costs and gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow
from nearsight.experiments.links.link import TABLE_6_3, in_words
from nearsight.experiments.rig.session import Played, Tiers
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.answers import latencies_ms, photo_row
from nearsight.experiments.studies.museums import SMOKE_WALKS, WALKS, TaughtMuseum, Walks, museum_of
from nearsight.experiments.studies.profiles import BACKEND_NAMES, LSH, OURS, EdgeProfiles, ProfileAmount

NETWORK = "Medium"
WITHOUT, PREFETCHING = "no prefetching", "prefetching"
PRIOR, BOUNDED_PRIOR = "new edge, paper's prior", "new edge"
CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    WITHOUT: {"prefetch.objects": "0"},
    PREFETCHING: {},
    PRIOR: {"cache.prior_mass": "inf"},
    BOUNDED_PRIOR: {},
}
"""Settings of the edge that differ from its defaults."""
UNTAUGHT = frozenset({PRIOR, BOUNDED_PRIOR})
_RANDOM = "guests"
"""Former name of the experiment; it is kept so that random numbers equal those of earlier runs."""
_COUNTS = ("entered", "useful", "wasted")
_ALL, _FIRST = "#1f6f8b", "#e0a33a"
_FATES = {"useful": "#7a9e3b", "wasted": "#c2571a", "in the cache at the end": "#bbbbbb"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement."""

    walks: Walks
    """Generated visits; four fifths of the visitors teach the edge."""
    following: Following
    """The visitors with devices, and the length of the replay."""
    repetitions: int
    """Number of repetitions, each with other visitors."""
    backends: Mapping[str, tuple[str, ...]]
    """Classifiers of the edge → configurations that are measured with each."""
    profile: ProfileAmount


FULL = Plan(
    WALKS,
    following=Following(devices=2, seconds=60.0, unknown_share=0.0),
    repetitions=3,
    backends={LSH: tuple(CONFIGURATIONS), OURS: (WITHOUT, PREFETCHING)},
    profile=ProfileAmount((1, 25, 50, 100, 200), subsets=2, queries=12),
)
SMOKE = Plan(
    SMOKE_WALKS,
    following=Following(devices=1, seconds=4.0, unknown_share=0.0),
    repetitions=1,
    backends={LSH: (WITHOUT, PREFETCHING)},
    profile=ProfileAmount((1, 6, 12), subsets=2, queries=3),
)


class Figure(Experiment):
    """Gain of prefetching at an idle edge, and of a bounded prior."""

    name: ClassVar[str] = "edge-prefetching"
    source: ClassVar[str] = "beyond the Cachier dissertation's chapter 3"
    style: ClassVar[Any] = {"axes.grid.axis": "x"}

    def __init__(self) -> None:
        self._profiles = EdgeProfiles()

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per repetition, classifier and configuration."""
        plan = SMOKE if options.smoke else FULL
        return [
            {"repetition": number, "backend": backend, "configurations": names}
            for number in range(plan.repetitions)
            for backend, configurations in plan.backends.items()
            for names in ([configurations] if options.smoke else [(name,) for name in configurations])
        ]

    def run(
        self, options: RunOptions, repetition: int, backend: str, configurations: Sequence[str]
    ) -> list[Row]:
        """Play a session; one row per photo."""
        plan, museum = SMOKE if options.smoke else FULL, TaughtMuseum(options, museum_of(options))
        rng = options.rng(_RANDOM, repetition)  # the same visitors for all configurations
        session = museum.session(
            museum.testbed(self.name), plan.walks.visits(rng), plan.following, TABLE_6_3[NETWORK], rng
        )
        settings = self._profiles.settings(museum, f"{self.name}-{backend}", backend, plan.profile)
        played = session.play({name: _tiers(settings, name) for name in configurations})
        return [
            {"backend": backend, "tiers": name, "repetition": repetition, **row}
            for name, one in played.items()
            for row in photo_rows(one)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``backends.<backend>.<configuration>``; latencies as mean and spread over the repetitions.

        Latencies are those of the answered photos; ``failed`` counts the others. Prefetched objects are
        summed over the repetitions.
        """
        return {"backends": numbers.nested(rows, ("backend", "tiers"), _configuration)}

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per classifier and configuration."""
        for backend, configuration, one in numbers.leaves(summary["backends"], 2):
            yield {
                "backend": backend,
                "configuration": configuration,
                "mean ms": numbers.mean_in_words(one["mean_ms"], 1),
                "p50 ms": numbers.mean_in_words(one["p50_ms"], 1),
                "at the edge": f"{100 * one['edge_share']:.0f} %",
                "first photos at the edge": f"{100 * one['first_photos']['edge_share']:.0f} %",
                "their mean ms": numbers.mean_in_words(one["first_photos"]["mean_ms"], 1),
                "prefetched": one["prefetched"]["entered"],
                **{name: one["prefetched"][name] for name in ("useful", "wasted")},
                "no answer": one["failed"],
                "requests": one["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the latency of all and of first photos, and the fates of the prefetched objects."""
        found = results.metrics["backends"]
        bars = [len(configurations) for configurations in found.values()]
        picture = drawing.new_picture(10.5, 1.6 + 0.75 * sum(bars))
        panels = picture.subplots(
            len(found), 2, squeeze=False, sharey="row", width_ratios=[1.6, 1], height_ratios=bars
        )
        for (latency, fates), (backend, configurations) in zip(panels, found.items(), strict=True):
            _draw_fates(fates, configurations)
            _draw_latency(latency, configurations)
            latency.set_title(f"Mean latency, {BACKEND_NAMES[backend]}")
        one = next(iter(next(iter(found.values())).values()))
        runs = one["mean_ms"]["runs"]
        drawing.caption(
            picture,
            f"{one['requests'] / runs:.0f} photos per edge and repetition, the same for all edges; "
            f"to the cloud {in_words(TABLE_6_3[NETWORK])}"
            + (
                f"\nlatencies: mean and range of {runs} repetitions; prefetched objects: sums of them"
                if runs > 1
                else ""
            ),
        )
        for axes, columns in zip(panels[-1], (2, 3), strict=True):
            below = (0.5, -0.44 / bars[-1])
            axes.legend(loc="upper center", bbox_to_anchor=below, ncols=columns, fontsize=8)
        return picture


def _tiers(edge: Mapping[str, object], configuration: str) -> Tiers:
    return Tiers(
        {**edge, **CONFIGURATIONS[configuration]},
        {"recognizer.prefetch.enabled": False},
        warmed_up=configuration not in UNTAUGHT,
    )


def photo_rows(played: Played) -> list[Row]:
    """One row per photo; each row also has the session's counts of prefetched objects."""
    counts = {f"prefetched_{name}": getattr(played.prefetched, name, 0) for name in _COUNTS}
    rows: list[Row] = []
    before: dict[str, str] = {}
    for row in played.rows:
        first = int(before.get(row.visitor) != row.expected)
        rows.append({**photo_row(row), "first": first, **counts})
        before[row.visitor] = row.expected
    return rows


def _configuration(rows: Sequence[StoredRow]) -> dict[str, Any]:
    repetitions = list(numbers.grouped(rows, "repetition").values())
    first = [[row for row in repetition if int(row["first"])] for repetition in repetitions]
    return {
        "mean_ms": _mean_ms(repetitions),
        "p50_ms": numbers.mean_and_spread([float(np.median(latencies_ms(one))) for one in repetitions]),
        "edge_share": _edge_share(rows),
        "first_photos": {
            "requests": sum(map(len, first)),
            "edge_share": _edge_share([row for repetition in first for row in repetition]),
            "mean_ms": _mean_ms(first),
        },
        "prefetched": {
            name: sum(int(repetition[0][f"prefetched_{name}"]) for repetition in repetitions)
            for name in _COUNTS
        },
        "wrong": sum(row["answered"] not in {"", row["expected"]} for row in rows),
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
    }


def _mean_ms(repetitions: Sequence[Sequence[StoredRow]]) -> dict[str, float]:
    return numbers.mean_and_spread([float(np.mean(latencies_ms(one))) for one in repetitions])


def _edge_share(rows: Sequence[StoredRow]) -> float:
    return numbers.share(row["answered_by"] == "edge" for row in rows)


def _draw_latency(axes: Axes, configurations: Mapping[str, Any]) -> None:
    places = np.arange(len(configurations))
    for offset, colour, label, values in (
        (-0.18, _ALL, "all photos", [one["mean_ms"] for one in configurations.values()]),
        (
            0.18,
            _FIRST,
            "first photos of an exhibit",
            [one["first_photos"]["mean_ms"] for one in configurations.values()],
        ),
    ):
        means, reach = drawing.error_bars(values)
        axes.barh(places + offset, means, height=0.34, color=colour, label=label)
        axes.errorbar(means, places + offset, xerr=reach, fmt="none", ecolor="#555555", capsize=2)
        for place, mean, most in zip(places, means, reach[1], strict=True):
            axes.text(mean + most, place + offset, f"  {mean:.0f} ms", va="center", fontsize=8)
    axes.set(xlabel="mean latency of the answered photos [ms]", xlim=(0, None))
    axes.margins(x=0.12)


def _draw_fates(axes: Axes, configurations: Mapping[str, Any]) -> None:
    entered, useful, wasted = (
        [one["prefetched"][name] for one in configurations.values()] for name in _COUNTS
    )
    kept = [max(0, one - two - three) for one, two, three in zip(entered, useful, wasted, strict=True)]
    parts = dict(zip(_FATES, (useful, wasted, kept), strict=True))
    drawing.stacked_bars(axes, list(configurations), parts, _FATES, height=0.5, numbers="black", least=1)
    most = max(map(sum, zip(*parts.values(), strict=True)))
    axes.tick_params(labelleft=False)
    axes.set(title="Prefetched objects", xlabel="objects", xlim=(0, max(1.0, 1.05 * most)))
    drawing.whole_numbers(axes.xaxis)
