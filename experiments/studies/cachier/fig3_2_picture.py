"""The picture of figure 3.2: latency and hit ratio over the cache size, and the four networks below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from nearsight.experiments.framework.drawing import Picture, caption, legend_below, new_picture
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.links.link import in_words
from nearsight.experiments.rig.edge_bench import ADAPTIVE
from nearsight.experiments.studies.cachier.fig3_2 import BACKENDS, LSH, NETWORKS, OURS, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_COLOURS = {LSH: "#c2571a", OURS: "#1f6f8b"}
_NAMES = {LSH: "LSH of FLANN, as in the paper", OURS: "our default"}
_HITS = "#8a8a8a"
_TICKS = frozenset({5, 20, 80})
_FEW_TICKS = frozenset({5, 20, 30, 80, 120})
"""Sizes that get no label: there is no room for all."""


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    found = results.metrics["backends"]
    networks = [network for network in found[LSH] if network != PAPER]
    picture = new_picture(11, 7.4 if networks else 4.2)
    grid = picture.add_gridspec(2 if networks else 1, 1, height_ratios=[1.25, 1] if networks else [1])
    above = picture.add_subfigure(grid[0])
    for axes, backend in zip(above.subplots(1, 2, sharey=True), BACKENDS, strict=True):
        _paper_panel(axes, found[backend][PAPER], backend)
    caption(above, _caption(found))
    if networks:
        _other_networks(picture.add_subfigure(grid[1]), found, networks)
    return picture


def _other_networks(below: SubFigure, found: Mapping[str, Any], networks: Sequence[str]) -> None:
    """One panel for each network of table 6.3."""
    panels = below.subplots(1, len(networks), squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        for backend in BACKENDS:
            _curve(axes, found[backend][network], _COLOURS[backend], _NAMES[backend])
        axes.set(xlabel="objects in the cache", ylim=(0, None))
        axes.text(0.0, 1.0, in_words(NETWORKS[network]), transform=axes.transAxes, va="bottom", size=7.5)
        axes.set_title(network, pad=16)
    panels[0].set_ylabel("mean latency [ms]")
    legend_below(below, panels[0], 4)


def _caption(found: Mapping[str, Any]) -> str:
    some = [next(iter(networks[PAPER]["static"].values())) for networks in found.values()]
    repetitions = len(some[0]["latency_ms"]["each"])
    requests = " and ".join(str(one["requests"] // repetitions) for one in some)
    return (
        f"Zipf 0.8; {requests} requests per cache size and network, one at a time, "
        "the same for all sizes; hits and misses at their medians"
        + (f"; bars: least and most of {repetitions} repetitions" if repetitions > 1 else "")
    )


def _paper_panel(axes: Axes, curve: Mapping[str, Any], backend: str) -> None:
    _curve(axes, curve, _COLOURS[backend], "static size", _TICKS)
    axes.set(xlabel="objects in the cache", ylabel="mean latency [ms]", ylim=(0, None))
    axes.set_title(f"{_NAMES[backend][0].upper()}{_NAMES[backend][1:]}; {in_words(NETWORKS[PAPER])}", pad=17)
    hits = axes.twinx()
    sizes = [int(size) for size in curve["static"]]
    hits.plot(
        sizes,
        [one["hit_ratio"] for one in curve["static"].values()],
        "s:",
        color=_HITS,
        markersize=3,
        label="hit ratio (right)",
    )
    hits.set(ylim=(0, 1.02), ylabel="hit ratio")
    hits.spines["right"].set_visible(True)
    hits.spines["right"].set_color(_HITS)
    hits.tick_params(axis="y", colors=_HITS)
    hits.yaxis.label.set_color(_HITS)
    hits.grid(visible=False)
    _note(axes, curve)
    lines = [*axes.get_legend_handles_labels()[0], *hits.get_legend_handles_labels()[0]]
    texts = [*axes.get_legend_handles_labels()[1], *hits.get_legend_handles_labels()[1]]
    axes.legend(lines, texts, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)


def _curve(
    axes: Axes, curve: Mapping[str, Any], colour: str, name: str, unlabelled: frozenset[int] = _FEW_TICKS
) -> None:
    sizes = np.array([int(size) for size in curve["static"]])
    middle, spread = _latencies(list(curve["static"].values()))
    axes.errorbar(
        sizes, middle, spread, fmt="o-", color=colour, markersize=4, capsize=2, elinewidth=1, label=name
    )
    adaptive = curve[ADAPTIVE]
    (at,), adaptive_spread = _latencies([adaptive])
    axes.axhline(at, color=colour, linewidth=1, linestyle="--", zorder=1)
    axes.errorbar(
        [adaptive["cached"]],
        [at],
        adaptive_spread,
        fmt="*",
        color=colour,
        markeredgecolor="black",
        markersize=12,
        capsize=2,
        elinewidth=1,
        zorder=4,
        clip_on=False,
        label="adaptive edge" if name == "static size" else f"{name}, adaptive",
    )
    axes.set_xscale("function", functions=(np.sqrt, np.square))
    axes.set_xlim(-0.0, sizes.max() * 1.06)
    axes.xaxis.set_major_locator(FixedLocator([size for size in sizes if size not in unlabelled]))
    axes.xaxis.set_minor_locator(NullLocator())


def _latencies(edges: list[Mapping[str, Any]]) -> tuple[Any, Any]:
    middle = np.array([one["latency_ms"]["median"] for one in edges])
    least = np.array([one["latency_ms"]["min"] for one in edges])
    most = np.array([one["latency_ms"]["max"] for one in edges])
    return middle, np.stack([middle - least, most - middle])


def _note(axes: Axes, curve: Mapping[str, Any]) -> None:
    adaptive = curve[ADAPTIVE]
    best = curve["static"][curve["best"]]["latency_ms"]["median"]
    text = (
        f"best static size {curve['best']}: {best:.0f} ms; "
        f"adaptive, chose {adaptive['cached']}: {adaptive['latency_ms']['median']:.0f} ms "
        f"({100 * (curve['adaptive over best'] - 1):+.1f} % on the same photos)"
    )
    axes.text(0.0, 1.0, text, transform=axes.transAxes, va="bottom", size=8)
