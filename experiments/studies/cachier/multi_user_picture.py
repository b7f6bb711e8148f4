"""The picture of many users at one edge: latency, and who answered, over the rate of photos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure as Picture

from nearsight.experiments.framework.result_files import ResultFolder
from nearsight.experiments.framework.style import STYLE, plain_logarithmic
from nearsight.experiments.studies.cachier.multi_user import BALANCED, BOUNDED, NETWORK, NONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {NONE: "#c2571a", BOUNDED: "#e0a33a", BALANCED: "#1f6f8b"}
_NAMES = {NONE: "no method", BOUNDED: "bounded compute time", BALANCED: "load balancing"}


def draw(folder: Path, name: str) -> Path:
    """Draw the picture from ``summary.json``; returns its path."""
    methods: Mapping[str, Any] = ResultFolder(folder).summary()["metrics"]["methods"]
    with mpl.rc_context(STYLE):
        picture = Picture(figsize=(10.5, 3.8), layout="constrained")
        latency, share = picture.subplots(1, 2, width_ratios=[1.4, 1])
        rates = [float(rate) for rate in methods[NONE]]
        for method, streams in methods.items():
            _latency(latency, method, streams)
            shares = [100 * one["edge_share"] for one in streams.values()]
            share.plot(rates, shares, "o-", color=_COLOURS[method], label=_NAMES[method])
        for axes in (latency, share):
            axes.set_xscale("log")
            axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
            axes.minorticks_off()
            axes.set_xlabel("photos per second")
        latency.set_yscale("log")
        plain_logarithmic(latency.yaxis)
        latency.set(ylabel="ms", title="Latency: median, and 95th percentile dashed")
        share.set(ylim=(-3, 103), ylabel="%", title="Answered by the edge")
        latency.legend(loc="upper left")
        picture.suptitle(
            f"One edge with one worker and the paper's classifier; a cloud {NETWORK.rtt_ms:g} ms away",
            fontsize=8.5,
            color="#555555",
        )
        path = folder / name
        picture.savefig(path, dpi=160)
    return path


def _latency(axes: Axes, method: str, streams: Mapping[str, Any]) -> None:
    rates = [float(rate) for rate in streams]
    colour = _COLOURS[method]
    for percentile, line in (("p50_ms", "o-"), ("p95_ms", "^--")):
        values = [one[percentile] for one in streams.values()]
        medians = [value["median"] for value in values]
        label = _NAMES[method] if percentile == "p50_ms" else None
        axes.plot(rates, medians, line, color=colour, label=label, markersize=4)
        axes.vlines(
            rates,
            [value["min"] for value in values],
            [value["max"] for value in values],
            color=colour,
            alpha=0.4,
        )
