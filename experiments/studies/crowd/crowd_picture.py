"""The picture of a crowd that moves: hit ratio over requests, and the requests that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.experiments.framework.drawing import Picture, caption, legend_below, new_picture
from nearsight.experiments.framework.experiment import Results, StoredRow
from nearsight.experiments.studies.crowd.crowd import (
    BOUNDED,
    HOUR,
    MAIN_STAY_H,
    NEVER,
    OURS,
    PAPER,
    QUARTER,
    REGAINED,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {NEVER: "#c2571a", HOUR: "#1f6f8b", QUARTER: "#24415c"}
_MARKERS = {NEVER: "s", HOUR: "o", QUARTER: "D"}
_ORACLE: Any = {"color": "#4f7a28", "linestyle": "--", "linewidth": 1.4}


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    rows = results.rows
    stays = sorted({float(row["stay_h"]) for row in rows})
    shown = MAIN_STAY_H if MAIN_STAY_H in stays else stays[0]
    picture = new_picture(10.0, 9.0)
    panels = picture.subplots(3, 2, width_ratios=[1.7, 1])
    for (course, effort), profile in zip(panels, (PAPER, BOUNDED, OURS), strict=True):
        mine = [row for row in rows if row["profile"] == profile and float(row["stay_h"]) == shown]
        found = results.metrics["regained"][profile]
        _draw_course(course, mine, found[f"{shown:g} h"][NEVER]["floor"]["mean"])
        course.set_title(f"{profile[0].upper()}{profile[1:]}: after {shown:g} h in another section")
        _draw_effort(effort, found)
        effort.set_title("Requests until it is regained")
    runs = len({row["repetition"] for row in rows})
    text = f"means of {runs} runs, with the least and the most; hollow: not regained when the requests ended"
    caption(picture, text)
    legend_below(picture, panels[0][0], 3)
    return picture


def _draw_course(axes: Axes, rows: Sequence[StoredRow], floor: float) -> None:
    steady = float(np.mean([float(row["hit_ratio_before"]) for row in rows]))
    for estimate, colour in _COLOURS.items():
        mine = [row for row in rows if row["estimate"] == estimate]
        runs = [
            [row for row in mine if row["repetition"] == one]
            for one in sorted({row["repetition"] for row in mine})
        ]
        longest = min(int(run[-1]["requests"]) for run in runs)
        grid = np.unique(np.geomspace(1, longest, 200).astype(int))
        values = np.array(
            [
                np.interp(
                    grid, [int(row["requests"]) for row in run], [float(row["hit_ratio"]) for row in run]
                )
                for run in runs
            ]
        )
        axes.plot(grid, values.mean(axis=0), color=colour, linewidth=2, label=estimate)
        axes.fill_between(grid, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.axhline(
        REGAINED * steady, color="#555555", linestyle=":", linewidth=1.2, label="95 % of that before the move"
    )
    axes.axvline(floor, **_ORACLE, label="an oracle: every object at its first request")
    axes.set(xlabel="requests after the move", ylabel="hit ratio", ylim=(0, 1), xscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_effort(axes: Axes, stays: Mapping[str, Any]) -> None:
    hours = [float(stay.removesuffix(" h")) for stay in stays]
    for estimate, colour in _COLOURS.items():
        mine = [estimates[estimate] for estimates in stays.values()]
        found = [one["requests"] for one in mine]
        axes.errorbar(
            hours,
            [one["mean"] for one in found],
            [[one["mean"] - one["min"] for one in found], [one["max"] - one["mean"] for one in found]],
            color=colour,
            linewidth=1.5,
            elinewidth=0.8,
            capsize=2,
        )
        for at_h, one in zip(hours, mine, strict=True):
            inside = "white" if one["never"] else colour
            axes.plot(at_h, one["requests"]["mean"], _MARKERS[estimate], color=colour, mfc=inside, ms=5)
    axes.plot(hours, [estimates[NEVER]["floor"]["mean"] for estimates in stays.values()], **_ORACLE)
    axes.set(xlabel="hours in the other section before", ylabel="requests", ylim=(0, None), xlim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
