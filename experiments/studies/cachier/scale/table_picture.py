"""The picture of table 6.4: p50 of the three systems over each variable, with the dissertation's words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure as Picture

from nearsight.experiments.framework.result_files import ResultFolder
from nearsight.experiments.framework.style import STYLE, plain_logarithmic
from nearsight.experiments.studies.cachier.scale.configurations import COLOURS, EDGE, NAMES
from nearsight.experiments.studies.cachier.scale.expectations import COLUMNS, EXPECTED, IN_WORDS
from nearsight.experiments.studies.cachier.scale.picture import world_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNDER = 4.0
"""Where the full system does as the edge does, the edge's line is seen under it."""


def draw(folder: Path, name: str) -> Path:
    """Draw the picture from ``summary.json``; returns its path."""
    found = ResultFolder(folder).summary()["metrics"]
    with mpl.rc_context(STYLE):
        picture = Picture(figsize=(4.0 * len(found["variables"]), 4.6), layout="constrained")
        panels = picture.subplots(1, len(found["variables"]), squeeze=False, sharey=True)[0]
        for axes, (variable, values) in zip(panels, found["variables"].items(), strict=True):
            _panel(axes, variable, values)
        panels[0].set_ylabel("latency: median [ms]")
        handles, labels = panels[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        picture.suptitle(world_in_words(found), fontsize=8.5, color="#555555")
        path = folder / name
        picture.savefig(path, dpi=160)
    return path


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
