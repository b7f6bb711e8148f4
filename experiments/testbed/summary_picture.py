"""The picture of a sweep: latency of every configuration over each variable; bars where nothing is varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Picture

from nearsight.experiments.framework.drawing import STYLE, plain_logarithmic
from nearsight.experiments.testbed.points import BASELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nearsight.experiments.testbed.summary import PartSummary

_COLOURS = ("#c2571a", "#e0a33a", "#8a8f3c", "#1f6f8b", "#24415c", "#8c5a8c", "#5c5c5c")


def draw(parts: Sequence[PartSummary], path: Path, baseline: Mapping[str, int]) -> Path:
    """Draw the picture; returns its path. ``baseline``: what the variables are where none is varied."""
    points = list(dict.fromkeys(part.point for part in parts))
    variables = list(dict.fromkeys(_variable(point) for point in points if point != BASELINE)) or [""]
    with mpl.rc_context(STYLE):
        picture = Picture(figsize=(3.2 + 3.4 * len(variables), 3.8), layout="constrained")
        panels = picture.subplots(1, len(variables), squeeze=False, sharey=True)[0]
        for axes, variable in zip(panels, variables, strict=True):
            chosen = [point for point in points if point == BASELINE or _variable(point) == variable]
            labels_of = {point: _value(point, variable, baseline) for point in chosen}
            _panel(axes, parts, dict(sorted(labels_of.items(), key=_order)), variable)
        panels[0].set_ylabel("ms")
        handles, labels = panels[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside right center")
        picture.suptitle(
            "Latency: points are medians, lines reach to 95th percentiles; both are medians over the runs",
            fontsize=8.5,
            color="#555555",
        )
        picture.savefig(path, dpi=160)
    return path


def _variable(point: str) -> str:
    return point.partition("-")[0]


def _value(point: str, variable: str, baseline: Mapping[str, int]) -> str:
    """Of the variable, at a point; "all" classes are those of the database."""
    if point != BASELINE:
        return point.removeprefix(f"{variable}-")
    return str(baseline[variable] or "all") if variable in baseline else BASELINE


def _order(labelled: tuple[str, str]) -> tuple[bool, int]:
    """Numbers by their size, after them what is none, in the order of the file."""
    label = labelled[1]
    return not label.isdigit(), int(label) if label.isdigit() else 0


def _panel(axes: Axes, parts: Sequence[PartSummary], points: Mapping[str, str], variable: str) -> None:
    """One variable: a marker per configuration and point, side by side; points have labels."""
    names = list(dict.fromkeys(part.configuration for part in parts))
    for index, name in enumerate(names):
        found = {part.point: part for part in parts if part.configuration == name}
        places, p50, p95 = [], [], []
        for place, point in enumerate(points):
            runs = found[point].each_run_ms
            if runs["p50"]:
                places.append(place + (index - (len(names) - 1) / 2) * 0.8 / len(names))
                p50.append(float(np.median(runs["p50"])))
                p95.append(float(np.median(runs["p95"])))
        colour = _COLOURS[index % len(_COLOURS)]
        axes.plot(places, p50, "o", markersize=4, color=colour, label=name)
        axes.vlines(places, p50, p95, color=colour, linewidth=1)
    axes.set_xticks(range(len(points)), list(points.values()))
    axes.set_title(variable or "all configurations")
    axes.set_yscale("log")
    plain_logarithmic(axes.yaxis)
