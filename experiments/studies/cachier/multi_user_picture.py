"""The picture of many users at one edge: latency, and who answered, over the rate of photos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearsight.experiments.framework.drawing import Picture, caption, new_picture, plain_logarithmic
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.studies.cachier.multi_user import BALANCED, BOUNDED, NETWORK, NONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {NONE: "#c2571a", BOUNDED: "#e0a33a", BALANCED: "#1f6f8b"}
_NAMES = {NONE: "no method", BOUNDED: "bounded compute time", BALANCED: "load balancing"}


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    methods: Mapping[str, Any] = results.metrics["methods"]
    picture = new_picture(10.5, 3.8)
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
    caption(
        picture,
        f"One edge with one worker and the paper's classifier; a cloud {NETWORK.rtt_ms:g} ms away",
    )
    return picture


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
