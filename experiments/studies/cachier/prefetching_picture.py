"""The picture of device prefetching: who answered, how fast, per configuration and kind of visitors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.experiments.framework.drawing import Picture, caption, new_picture, plain_logarithmic
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.links.link import TABLE_6_3, in_words
from nearsight.experiments.studies.cachier.prefetching import (
    ADAPTIVE,
    CONFIGURATIONS,
    EDGE_CACHE,
    FIXED,
    GENERATED,
    NETWORK,
    ONLY_CLOUD,
    REAL,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    ONLY_CLOUD: "only cloud",
    EDGE_CACHE: "edge cache",
    FIXED: "prefetching,\n600 features",
    ADAPTIVE: "prefetching,\nadaptive",
}
_COLOURS = {ONLY_CLOUD: "#c2571a", EDGE_CACHE: "#1f6f8b", FIXED: "#e0a33a", ADAPTIVE: "#4f7a28"}
_TIERS = {"device": "#7a9e3b", "edge": "#1f6f8b", "cloud": "#c2571a"}
_TITLES = {GENERATED: "generated visitors", REAL: "real visitors"}
_LEAST_LABEL = 3.5


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    found: Mapping[str, Any] = results.metrics["traces"]
    latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in results.rows:
        if row["answered_by"]:
            latencies[row["trace"], row["tiers"]].append(float(row["latency_ms"]))
    picture = new_picture(10.5, 0.6 + 3.6 * len(found))
    panels = picture.subplots(len(found), 2, squeeze=False, sharex="col", width_ratios=[1.25, 1])
    for (distribution, tiers), (trace, one) in zip(panels, found.items(), strict=True):
        _distribution(distribution, {name: latencies[trace, name] for name in CONFIGURATIONS}, one)
        requests = one[ONLY_CLOUD]["requests"]
        distribution.set_title(f"Latency, {_TITLES[trace]}, {requests} photos")
        _answered_by(tiers, one)
        tiers.set_title(f"Answered by, {_TITLES[trace]}")
    caption(
        picture,
        "One photo per second and device, the same photos for all configurations; "
        f"to the cloud {in_words(TABLE_6_3[NETWORK])}",
    )
    return picture


def _distribution(axes: Axes, latencies: Mapping[str, Sequence[float]], found: Mapping[str, Any]) -> None:
    for name, values in latencies.items():
        ordered = np.sort(values)
        shares = np.arange(1, len(ordered) + 1) / len(ordered)
        p50 = found[name]["p50_ms"]["median"]
        label = f"{_NAMES[name]}: p50 {p50:.1f} ms".replace("\n", " ")
        axes.step(ordered, shares, where="post", color=_COLOURS[name], linewidth=1.8, label=label)
        axes.plot([p50], [0.5], "o", color=_COLOURS[name], markersize=5)
    axes.tick_params(labelbottom=True)
    axes.set(xlabel="latency [ms]", ylabel="share answered within …", ylim=(0, 1.02), xscale="log")
    plain_logarithmic(axes.xaxis)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=8)


def _answered_by(axes: Axes, found: Mapping[str, Any]) -> None:
    names = [_NAMES[name] for name in CONFIGURATIONS]
    left = np.zeros(len(names))
    for tier, colour in _TIERS.items():
        shares = np.array([100 * found[name]["answered_by"][tier] for name in CONFIGURATIONS])
        bars = axes.barh(names, shares, left=left, color=colour, height=0.6, label=tier)
        texts = [f"{share:.0f}" if share >= _LEAST_LABEL else "" for share in shares]  # the axis says %
        axes.bar_label(bars, texts, label_type="center", color="white", fontsize=8)
        left += shares
    for place, name in enumerate(CONFIGURATIONS):
        one = found[name]
        text = f"recall {one['recall']:.3f}\nprecision {one['precision']:.3f}"
        axes.text(103, place, text, va="center", fontsize=7.5)
    axes.tick_params(labelbottom=True)
    axes.set(xlim=(0, 100), xlabel="share of requests [%]")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, fontsize=8)
