"""Failures of the full system in many sessions near the capacity of edge and cloud, against simpler systems.

A system that amplifies its own overload fails completely in a few sessions, not slightly in each. Therefore
many sessions are played on the twin, each with other visitors, photos and history; all configurations play
the same sessions. The experiment is meant for the dissertation's costs (``--costs paper``), whose edge and
cloud are at their limit with ten visitors.

The full system is compared with the simpler configuration that failed least over all sessions. A sign-flip
test of the differences in each session shows whether it fails more than by chance: if the two were
equivalent, each difference could equally have the other sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Results, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import counted, grouped, nested, values
from nearsight.experiments.studies.cachier.scale.configurations import COLOURS, FULL, NAMES, ORDER
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, TESTBED, points_of
from nearsight.experiments.studies.cachier.scale.scale_figure import AtPoints, cells_at, world_of
from nearsight.experiments.twin.session import COOPERATIVE

VISITORS = (8, 10, 12)
SESSIONS = 200
SIMPLER = tuple(name for name in ORDER if name not in {FULL, COOPERATIVE})
CHANCE = 0.05
"""Significance level: a difference with at least this probability under equivalence counts as chance."""
_FLIPS = 10_000
_NUMBERS = ("failed", "p50_ms", "p95_ms")


class Figure(AtPoints):
    """Photos without an answer in 200 sessions each with 8, 10 and 12 visitors; six configurations."""

    name: ClassVar[str] = "collapse"
    source: ClassVar[str] = "beyond the Cachier dissertation's 6.3"

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in the options of a run on the twin."""
        if TESTBED in {options.on, options.costs}:
            raise InvalidArgument(
                "so many sessions would take days on a testbed", advice="leave out --on and --costs testbed"
            )
        return super().completed(options, say)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per number of visitors and session."""
        if options.smoke:
            return cells_at(points_of("visitors", options)[:1], 2)
        points = [replace(BASELINE, visitors=visitors) for visitors in VISITORS]
        return cells_at(points, options.runs or SESSIONS)

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``visitors.<number>``: all configurations, the ``best`` simpler one, and ``p_more``.

        ``p_more`` is the probability that the full system fails at least this much more than the best simpler
        one if the two are equivalent.
        """
        return {
            **world_of(rows),
            "visitors": {number: _numbers(of_all) for number, of_all in grouped(rows, "visitors").items()},
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The full system fails no more than the best simpler configuration, beyond chance."""
        for visitors, one in summary["visitors"].items():
            text = (
                f"{visitors} visitors: the full system fails no more than {NAMES[one['best']]}; a "
                f"difference by chance has a probability of at least {CHANCE:g}"
            )
            yield Target.at_least(text, one["p_more"], CHANCE, _in_words(one))

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One row per number of visitors and configuration."""
        for visitors, found in summary["visitors"].items():
            for tiers, one in found["tiers"].items():
                yield {
                    "visitors": visitors,
                    "configuration": NAMES[tiers],
                    "sessions": one["sessions"],
                    "with failures": one["failing"],
                    "mean failed": f"{one['failed']['mean']:.2f}",
                    "most failed": f"{one['failed']['max']:.0f}",
                    "median p50 ms": f"{one['p50_ms']['median']:.0f}",
                    "largest p50 ms": f"{one['p50_ms']['max']:.0f}",
                }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw failures and the sessions' median latencies by configuration; one column per visitors."""
        found = nested(results.rows, ("visitors", "tiers"), lambda rows: rows)
        picture = drawing.new_picture(3.4 * max(2, len(found)) + 0.6, 4.6)
        panels = picture.subplots(2, len(found), squeeze=False, sharex="all", sharey="row")
        for (lost, medians), (visitors, by_tiers) in zip(panels.T, found.items(), strict=True):
            sessions = len(next(iter(by_tiers.values())))
            for place, (tiers, rows) in enumerate(by_tiers.items()):
                counts = values(rows, "failed")
                look = {"color": COLOURS[tiers], "label": NAMES[tiers]}
                bar = lost.bar(place, np.mean(counts), **look)
                lost.bar_label(bar, [f"{sum(counts):.0f}"], fontsize=8)
                box = medians.boxplot(values(rows, "p50_ms"), positions=[place], widths=0.7, whis=(0, 100))
                for line in (line for lines in box.values() for line in lines):
                    line.set_color(COLOURS[tiers])
            lost.set(title=f"{counted(int(visitors), 'visitor')}, {counted(int(sessions), 'session')}")
            medians.set(yscale="log", xticks=[])
            drawing.plain_logarithmic(medians.yaxis)
        most = max(
            np.mean(values(rows, "failed")) for by_tiers in found.values() for rows in by_tiers.values()
        )
        panels[0, 0].set_ylim(0, max(1.0, 1.15 * most))
        panels[0, 0].set_ylabel("without an answer,\nphotos per session")
        panels[1, 0].set_ylabel("p50 of each session [ms]")
        drawing.caption(
            picture, "numbers: photos without an answer in all sessions; boxes: quartiles and range"
        )
        drawing.legend_below(picture, panels[0, 0], columns=3)
        return picture


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    by_tiers = grouped(rows, "tiers")
    failed = {tiers: {row["run"]: int(row["failed"]) for row in of_one} for tiers, of_one in by_tiers.items()}
    best = min(SIMPLER, key=lambda tiers: sum(failed[tiers].values()))
    more = [count - failed[best][session] for session, count in failed[FULL].items()]
    return {
        "tiers": {tiers: _of_tiers(of_one) for tiers, of_one in by_tiers.items()},
        "best": best,
        "p_more": round(likelihood_of_more(more), 4),
        "more": round(float(np.mean(more)), 4),
    }


def _of_tiers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {
            "mean": round(float(np.mean(of_name)), 4),
            "median": round(float(np.median(of_name)), 4),
            "max": round(max(of_name), 4),
        }
        for name in _NUMBERS
        if (of_name := values(rows, name))
    }
    return {**found, "sessions": len(rows), "failing": sum(value > 0 for value in values(rows, "failed"))}


def likelihood_of_more(differences: Sequence[float]) -> float:
    """Sign-flip test: probability that paired differences with random signs have at least this mean.

    Parameters
    ----------
    differences : sequence of float, length N

    Returns
    -------
    float
        Estimated over random signs; 1 if all differences are 0.
    """
    given = np.asarray([one for one in differences if one], dtype=float)
    signs = np.random.default_rng(1).choice((-1.0, 1.0), (_FLIPS, len(given)))
    as_large = np.count_nonzero(signs @ given >= given.sum())
    return float((1 + as_large) / (1 + _FLIPS))


def _in_words(one: Mapping[str, Any]) -> str:
    full, best = one["tiers"][FULL], one["tiers"][one["best"]]
    return (
        f"failures per session: {full['failed']['mean']:.2f}, {best['failed']['mean']:.2f} with "
        f"{NAMES[one['best']]}; at most {full['failed']['max']:.0f} and {best['failed']['max']:.0f}"
    )
