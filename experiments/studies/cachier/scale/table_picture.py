"""The picture of table 6.4: p50 of the three systems over each variable, with the dissertation's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearsight.experiments.framework.drawing import (
    Picture,
    caption,
    legend_below,
    new_picture,
    plain_logarithmic,
)
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.studies.cachier.scale.configurations import COLOURS, EDGE, NAMES
from nearsight.experiments.studies.cachier.scale.expectations import COLUMNS, EXPECTED, IN_WORDS
from nearsight.experiments.studies.cachier.scale.picture import world_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNDER = 4.0
"""Where the full system does as the edge does, the edge's line is seen under it."""


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    found = results.metrics
    picture = new_picture(4.0 * len(found["variables"]), 4.6)
    panels = picture.subplots(1, len(found["variables"]), squeeze=False, sharey=True)[0]
    for axes, (variable, values) in zip(panels, found["variables"].items(), strict=True):
        _panel(axes, variable, values)
    panels[0].set_ylabel("latency: median [ms]")
    legend_below(picture, panels[0])
    caption(picture, world_in_words(found))
    return picture


def _panel(axes: Axes, variable: str, values: Mapping[str, Any]) -> None:
    """The three systems over one variable."""
    for tiers in COLUMNS:
        p50 = [one[tiers]["p50_ms"] for one in values.values()]
        axes.plot(
            range(len(values)),
            [one["median"] for one in p50],
            "o-",
            color=COLOURS[tiers],
            label=NAMES[tiers],
            markersize=7 if tiers == EDGE else 4,
            linewidth=_UNDER if tiers == EDGE else 1.5,
        )
        axes.fill_between(
            range(len(values)),
            [one["min"] for one in p50],
            [one["max"] for one in p50],
            color=COLOURS[tiers],
            alpha=0.15,
            linewidth=0,
        )
    axes.set_xticks(range(len(values)), list(values), fontsize=8)
    axes.set_yscale("log")
    plain_logarithmic(axes.yaxis)
    axes.set_title(variable)
    words = "\n".join(
        f"{NAMES[tiers]}: {EXPECTED[variable][tiers]} ({IN_WORDS[variable][tiers]})" for tiers in COLUMNS
    )
    axes.set_xlabel(f"Dissertation:\n{words}", fontsize=7, color="#555555", loc="left")
