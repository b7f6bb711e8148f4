"""Adaptation of an edge's cache after a crowd moved to another section (beyond the dissertation, 3.3.2.2).

Visitors spend hours in one section of a museum; then all of them are in another one. The edge has counted the
requests of the first section for hours. In the dissertation's estimate these counts never decay. The more
requests were counted, the longer it takes the new section for unpopular. Counts that lose half of their
weight per half-life adapt sooner.

The decision objects are those of the edge: distribution, size, change, miss latency. They run on the
visitors' virtual clock. There are three caches: with the paper's LSH, which must stay small; with our default
backend, where hundreds of objects cost little; and with our backend bounded to fewer objects than a section
has.

The hit ratio is the expected one: recall times the share of the section's requests that are for cached
objects. It counts as regained at 95 % of its value before the move.

Models are fetched at the first request for the object (3.5.3), so some requests are needed under any
estimate. Even an oracle that knows the new section's popularity beforehand must wait for the first request of
each object. Where a cache is small or a lookup expensive, the oracle needs a few per cent of the requests
that the paper's estimate needs. Where hundreds of objects cost little, a few requests are enough to add an
object under any estimate. Most of the delay then comes from exhibits that no visitor has reached yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.object_cache.profile import CacheProfile, default_profile
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.studies.crowd.edge import (
    CrowdEdge,
    EdgeCosts,
    Requests,
    first_requests_needed,
    section_requests,
)

PAPER, BOUNDED, OURS = "paper's LSH", "default backend, at most 40 objects", "default backend"
NEVER, HOUR, QUARTER = "no decay (paper)", "half-life 1 h (default)", "half-life 15 min"
ESTIMATES = {NEVER: math.inf, HOUR: 3600.0, QUARTER: 900.0}
MAIN_STAY_H = 4.0
REGAINED = 0.95
MOST_OF_PAPER = 0.5

_OBJECTS = 400
_BOUND = 40
_STAYS_H, _SMOKE_STAYS_H = (1.0, 2.0, 4.0, 8.0), (0.2,)
_SEEDS, _SMOKE_SEEDS = 5, 1
_SETTLING_S = 1200.0
"""Time before the move during which the edge decides [s]; before that it only counts, with the same effect.
"""
_SAMPLES = 60
_COLOURS = {NEVER: "#c2571a", HOUR: "#1f6f8b", QUARTER: "#24415c"}
_MARKERS = {NEVER: "s", HOUR: "o", QUARTER: "D"}
_ORACLE: Any = {"color": "#4f7a28", "linestyle": "--", "linewidth": 1.4}


class Figure(Experiment):
    """Hit ratio after a crowd moves to another section, with and without decaying counts."""

    name: ClassVar[str] = "crowd"
    source: ClassVar[str] = "beyond the Cachier dissertation's 3.3.2.2"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per length of the stay and repetition."""
        stays, seeds = (_SMOKE_STAYS_H, _SMOKE_SEEDS) if options.smoke else (_STAYS_H, _SEEDS)
        return [{"stay_h": stay_h, "number": number} for stay_h in stays for number in range(seeds)]

    def run(self, options: RunOptions, stay_h: float, number: int) -> Iterator[Row]:
        """Move the crowd in front of every cache; one row per sample after the move."""
        before, after = (
            section_requests(section, stay_h * 3600.0, options.rng(self.name, section, number, str(stay_h)))
            for section in (0, 1)
        )
        for (profile, costs), (estimate, half_life_s) in product(costs_of().items(), ESTIMATES.items()):
            edge = CrowdEdge(
                [f"{position + 1:04d}" for position in range(_OBJECTS)],
                costs,
                half_life_s,
                options.rng(self.name, "edge", number, str(stay_h)),
            )
            steady, regained, course = watch(edge, before, after, stay_h * 3600.0)
            floor = first_requests_needed(costs, after, REGAINED * steady)
            for at, hits, k in course:
                yield {
                    "stay_h": stay_h,
                    "repetition": number,
                    "profile": profile,
                    "estimate": estimate,
                    "hit_ratio_before": steady,
                    "requests": at,
                    "hit_ratio": hits,
                    "k": k,
                    "regained": regained,
                    "floor": floor,
                }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Requests until the hit ratio is regained, by profile, stay and estimate; also over the paper's.

        ``floor`` is the number of requests that an oracle needs. ``never`` counts the repetitions that had
        not regained the hit ratio after all requests.
        """
        found = {
            profile: {f"{float(stay_h):g} h": estimates for stay_h, estimates in stays.items()}
            for profile, stays in numbers.nested(rows, ("profile", "stay_h", "estimate"), _regained).items()
        }
        for stays in found.values():
            for estimates in stays.values():
                paper = estimates[NEVER]
                for one in estimates.values():
                    one["share_of_paper"] = round(one["requests"]["mean"] / paper["requests"]["mean"], 4)
                    one["share_beyond_floor"] = round(_beyond_floor(one) / max(1.0, _beyond_floor(paper)), 4)
        return {"regained": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """At most half of the requests that the paper's estimate needs.

        Where even the oracle needs more than half, no estimate could reach this target. There, the requests
        in excess of the oracle's are compared.
        """
        targets = []
        for profile, stays in summary["regained"].items():
            stay = f"{MAIN_STAY_H:g} h" if f"{MAIN_STAY_H:g} h" in stays else next(iter(stays))
            ours, paper = stays[stay][HOUR], stays[stay][NEVER]
            share, value = ours["share_of_paper"], ours["share_of_paper"]
            text = f"{profile}, after {stay}: requests to regain, default over paper's estimate, at most 0.5"
            oracle = paper["floor"]["mean"] / paper["requests"]["mean"]
            if oracle > MOST_OF_PAPER:
                value = ours["share_beyond_floor"]
                text = (
                    f"{profile}, after {stay}: requests to regain are {share:.2f} of the paper's; an oracle "
                    f"needs {oracle:.2f}; excess over the oracle's, default over paper's, at most 0.5"
                )
            targets.append(Target.at_most(text, value, MOST_OF_PAPER))
        return tuple(targets)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per profile, stay and estimate."""
        for profile, stay, estimate, one in numbers.leaves(summary["regained"], 3):
            yield {
                "profile": profile,
                "stay": stay,
                "estimate": estimate,
                "hit ratio before": f"{one['before']['mean']:.3f}",
                "oracle's requests": f"{one['floor']['mean']:.0f}",
                "requests to regain it": "≥ " * bool(one["never"])
                + numbers.mean_in_words(one["requests"], 0),
                "relative to the paper": f"{one['share_of_paper']:.2f}",
                "excess, relative": f"{one['share_beyond_floor']:.2f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the hit ratio over requests, and the number of requests until it is regained."""
        rows = results.rows
        stays = sorted({float(row["stay_h"]) for row in rows})
        shown = MAIN_STAY_H if MAIN_STAY_H in stays else stays[0]
        picture = drawing.new_picture(10.0, 9.0)
        panels = picture.subplots(3, 2, width_ratios=[1.7, 1])
        for (course, effort), profile in zip(panels, (PAPER, BOUNDED, OURS), strict=True):
            mine = [row for row in rows if row["profile"] == profile and float(row["stay_h"]) == shown]
            found = results.metrics["regained"][profile]
            _draw_course(course, mine, found[f"{shown:g} h"][NEVER]["floor"]["mean"])
            course.set_title(f"{drawing.capital(profile)}: after {shown:g} h in another section")
            _draw_effort(effort, found)
            effort.set_title("Requests until the hit ratio is regained")
        runs = len({row["repetition"] for row in rows})
        text = f"means and ranges of {numbers.counted(runs, 'run')}; hollow: not regained by the last request"
        drawing.caption(picture, f"{text} in at least one run")
        drawing.legend_below(picture, panels[0][0], 3)
        return picture


def _regained(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Summarise one estimate after one stay; the last row of a repetition covers all of its requests."""
    last = [repetition[-1] for repetition in numbers.grouped(rows, "repetition").values()]
    return {
        "requests": numbers.mean_and_spread(numbers.values(last, "regained")),
        "floor": numbers.mean_and_spread(numbers.values(last, "floor")),
        "before": numbers.mean_and_spread(numbers.values(last, "hit_ratio_before")),
        "never": sum(row["regained"] == row["requests"] for row in last),
    }


def _beyond_floor(found: Mapping[str, Any]) -> float:
    """Requests that the estimate needs in addition to the oracle's."""
    return float(found["requests"]["mean"] - found["floor"]["mean"])


def costs_of() -> dict[str, EdgeCosts]:
    """Costs of lookups and misses in each case.

    The paper's LSH on Stanford has its lines of tables 3.1 and 3.2. A miss takes 370 ms: with this value, 28
    of 400 objects are the best size and sizes from 85 on are worse than no cache; in the paper's figure 3.2
    these are about 30 and 80. Our backend has its built-in profile and the daemon's default miss latency.
    """
    paper = CacheProfile(
        backend="flann-lsh",
        query_features=800,
        largest_k=_OBJECTS,
        lookup_ms=(51.14, 1.87),
        recall=(0.90, -0.00014),
    )
    ours = default_profile()
    return {
        PAPER: EdgeCosts(paper, miss_ms=370.0),
        BOUNDED: EdgeCosts(ours, miss_ms=100.0, k_max=_BOUND),
        OURS: EdgeCosts(ours, miss_ms=100.0),
    }


def watch(
    edge: CrowdEdge, before: Requests, after: Requests, stay_s: float
) -> tuple[float, int, list[tuple[int, float, int]]]:
    """Play both sections.

    Returns
    -------
    hit ratio before the move; requests until it was regained, or all of them if it never was; samples after
    the move, each (requests, hit ratio, cache size)
    """
    for at_s, object_id in zip(before.times_s, before.object_ids, strict=True):
        if at_s < stay_s - _SETTLING_S:
            edge.count(object_id, float(at_s))
        else:
            edge.request(object_id, float(at_s))
    steady = edge.expected_hit_ratio(before.shares)
    course: list[tuple[int, float, int]] = [(0, edge.expected_hit_ratio(after.shares), edge.size)]
    regained = len(after.times_s)
    marks = set(np.unique(np.geomspace(1, len(after.times_s), _SAMPLES).astype(int)).tolist())
    for number, (at_s, object_id) in enumerate(zip(after.times_s, after.object_ids, strict=True), start=1):
        edge.request(object_id, stay_s + float(at_s))
        if number in marks or edge.changed:
            ratio = edge.expected_hit_ratio(after.shares)
            if ratio >= REGAINED * steady:
                regained = min(regained, number)
            if number in marks:
                course.append((number, ratio, edge.size))
    return steady, regained, course


def _draw_course(axes: Axes, rows: Sequence[StoredRow], floor: float) -> None:
    steady = float(np.mean(numbers.values(rows, "hit_ratio_before")))
    for estimate, colour in _COLOURS.items():
        mine = numbers.grouped((row for row in rows if row["estimate"] == estimate), "repetition")
        runs = [mine[name] for name in sorted(mine)]
        longest = min(int(run[-1]["requests"]) for run in runs)
        grid = np.unique(np.geomspace(1, longest, 200).astype(int))
        values = np.array(
            [
                np.interp(grid, numbers.values(run, "requests"), numbers.values(run, "hit_ratio"))
                for run in runs
            ]
        )
        axes.plot(grid, values.mean(axis=0), color=colour, linewidth=2, label=estimate)
        axes.fill_between(grid, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.axhline(
        REGAINED * steady,
        color="#555555",
        linestyle=":",
        linewidth=1.2,
        label="95 % of the hit ratio before the move",
    )
    axes.axvline(floor, **_ORACLE, label="oracle: caches every object at its first request")
    axes.set(xlabel="requests after the move", ylabel="hit ratio", ylim=(0, 1), xscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_effort(axes: Axes, stays: Mapping[str, Any]) -> None:
    hours = [float(stay.removesuffix(" h")) for stay in stays]
    for estimate, colour in _COLOURS.items():
        mine = [estimates[estimate] for estimates in stays.values()]
        means, reach = drawing.error_bars([one["requests"] for one in mine])
        axes.errorbar(hours, means, reach, color=colour, linewidth=1.5, elinewidth=0.8, capsize=2)
        for at_h, one in zip(hours, mine, strict=True):
            inside = "white" if one["never"] else colour
            axes.plot(at_h, one["requests"]["mean"], _MARKERS[estimate], color=colour, mfc=inside, ms=5)
    axes.plot(hours, [estimates[NEVER]["floor"]["mean"] for estimates in stays.values()], **_ORACLE)
    axes.set(xlabel="hours in the first section", ylabel="requests", xlim=(0, None))
    axes.set_ylim(0, 1.08 * axes.dataLim.y1)
    axes.yaxis.set_major_formatter("{x:,.0f}")
