"""The picture of the twin's validation: how latencies are distributed on the testbed and in the twin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.experiments.framework.drawing import Picture, legend_below, new_picture, plain_logarithmic
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.links.link import in_words
from nearsight.experiments.studies.twin_validation.twin_bench import CONFIGURATIONS_COMPARED, FIT, POINTS
from nearsight.experiments.studies.twin_validation.twin_validation import TESTBED, TWIN
from nearsight.experiments.twin.session import ADAPTIVE, LOAD_BALANCED, ONLY_CLOUD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {ONLY_CLOUD: "only cloud", LOAD_BALANCED: "load-balanced edge", ADAPTIVE: "full system"}
_COLOURS = {ONLY_CLOUD: "#c2571a", LOAD_BALANCED: "#1f6f8b", ADAPTIVE: "#4f7a28"}
_LINES = {TESTBED: "-", TWIN: "--"}


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    found: Mapping[str, Any] = results.metrics["points"]
    latencies: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in results.rows:
        if row["answered_by"]:
            latencies[row["point"], row["tiers"], row["source"]].append(float(row["latency_ms"]))
    picture = new_picture(3.6 * len(found) + 0.6, 4.4)
    panels = picture.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for axes, (point, one) in zip(panels, found.items(), strict=True):
        _panel(axes, point, one, latencies)
    panels[0].set_ylabel("share answered within …")
    legend_below(picture, panels[-1], len(CONFIGURATIONS_COMPARED))
    return picture


def _panel(
    axes: Axes, point: str, found: Mapping[str, Any], latencies: Mapping[tuple[str, str, str], list[float]]
) -> None:
    lines = []
    for tiers in CONFIGURATIONS_COMPARED:
        for source, style in _LINES.items():
            ordered = np.sort(latencies.get((point, tiers, source), []))
            shares = np.arange(1, len(ordered) + 1) / max(1, len(ordered))
            axes.step(
                ordered,
                shares,
                where="post",
                color=_COLOURS[tiers],
                linestyle=style,
                linewidth=1.6,
                label=f"{_NAMES[tiers]}, {source}",
            )
        errors = found[tiers]["errors"]
        lines.append(f"{_NAMES[tiers]}: {100 * errors['p50']:+.0f} %, {100 * errors['p95']:+.0f} %")
    what = f"{point} (costs are fitted here)" if point == FIT else point
    axes.set_title(f"{what}\n{in_words(POINTS[point].network)}")
    axes.set(ylim=(0, 1.02), xscale="log")
    plain_logarithmic(axes.xaxis)
    axes.tick_params(axis="x", labelrotation=60)
    axes.set_xlabel("latency [ms]\nThe twin's error of p50, p95:\n" + "\n".join(lines), fontsize=8)
