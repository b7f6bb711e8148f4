"""The map: a tile per operating point, coloured by what the full system loses or gains there.

Small maps side by side: a row per metric, a column per pair of machines. In each, visitors grow to the right
within a network, sections and classes upwards. Grey is level: within chance, or less than anybody notices.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

from nearsight.experiments.framework.drawing import Picture, new_picture
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.studies.cachier.scale.operating_point import NETWORKS
from nearsight.experiments.studies.map.loss_grid import MACHINES
from nearsight.experiments.studies.map.losses import METRICS, Loss, losses_of
from nearsight.experiments.twin.session import ADAPTIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("p50", "mean", "p95", "bytes", "edge")
_LEVEL = "#f1f1ef"
_COLOURS = LinearSegmentedColormap.from_list(
    "losses", [(0.0, "#124a60"), (0.35, "#7fb6c6"), (0.5, _LEVEL), (0.65, "#eba176"), (1.0, "#a83c08")]
)
_NORM = TwoSlopeNorm(0.0, -1.0, 1.0)
"""Of the ratio's logarithm to base 2: half and twice."""
_TICKS = {-1.0: "half or less", -float(np.log2(1.25)): "-20 %", 0.0: "level", float(np.log2(1.25)): "+25 %"}
_MORE = "twice or more"
_TITLE = "Where the full system loses (red) and wins (blue) against the best simpler configuration"
_TEXT_WIDTH, _LINE_HEIGHT, _MAPS_HEIGHT = 172, 0.185, 11.0
_LABEL_WIDTH = 20
_DARK = 0.55
"""Numbers on tiles beyond this are white."""


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    rows, found = results.rows, results.metrics
    losses = {metric: losses_of(rows, ADAPTIVE, metric) for metric in SHOWN}
    played = {one.place.machines for one in losses[SHOWN[0]]}
    machines = [name for name in MACHINES if name in played]
    sentences = _sentences(found["systems"][ADAPTIVE])
    text_height = _LINE_HEIGHT * len(sentences) + 0.25
    picture = new_picture(12.0, _MAPS_HEIGHT + text_height)
    parts: Any = picture.subfigures(2, 1, height_ratios=[_MAPS_HEIGHT, text_height])
    maps, words = parts
    panels = maps.subplots(len(SHOWN), len(machines), squeeze=False, sharey=True, sharex="col")
    for row, metric in zip(panels, SHOWN, strict=True):
        for axes, name in zip(row, machines, strict=True):
            _draw_map(axes, [one for one in losses[metric] if one.place.machines == name])
        title = "\n".join(textwrap.wrap(_capital(METRICS[metric].title), _LABEL_WIDTH))
        row[0].set_ylabel(title, fontsize=9, fontweight="bold", labelpad=8)
    for axes, name in zip(panels[0], machines, strict=True):
        axes.annotate(
            _capital(name),
            (0.5, 1.2),
            xycoords="axes fraction",
            ha="center",
            fontsize=10,
            fontweight="bold",
        )
    maps.suptitle(_TITLE, fontsize=12, fontweight="bold")
    _draw_scale(maps, panels)
    words.text(0.012, 0.98, "\n".join(sentences), va="top", fontsize=8, linespacing=1.35)
    return picture


def _draw_scale(maps: Any, panels: Any) -> None:
    bar = maps.colorbar(
        mpl.cm.ScalarMappable(_NORM, _COLOURS), ax=panels, location="right", shrink=0.5, aspect=35, pad=0.01
    )
    bar.set_ticks([*_TICKS, 1.0], labels=[*_TICKS.values(), _MORE], fontsize=8)
    bar.outline.set_visible(False)


def _draw_map(axes: Axes, losses: Sequence[Loss]) -> None:
    networks = sorted({one.place.network for one in losses}, key=lambda name: NETWORKS[name].up_mbps)
    visitors = sorted({one.place.visitors for one in losses})
    sizes = sorted({(one.place.sections, one.place.classes) for one in losses})
    tiles = np.zeros((len(sizes), len(networks) * len(visitors)))
    for one in losses:
        place = one.place
        column = networks.index(place.network) * len(visitors) + visitors.index(place.visitors)
        line = sizes.index((place.sections, place.classes))
        if not (one.lost or one.won):
            continue
        shade = tiles[line, column] = float(np.clip(np.log2(one.ratio), -1, 1))
        if one.lost:
            colour = "white" if shade > _DARK else "#40200c"
            told = f"+{one.difference:.2g}" if one.difference < 100 else f"+{one.difference:.0f}"
            axes.text(column, line, told, ha="center", va="center", fontsize=6, color=colour)
    axes.imshow(tiles, cmap=_COLOURS, norm=_NORM, origin="lower", aspect="auto", interpolation="none")
    axes.set_xticks(range(tiles.shape[1]), [str(count) for _ in networks for count in visitors], fontsize=7)
    axes.set_yticks(range(len(sizes)), [f"{44 * one} of {classes}" for one, classes in sizes], fontsize=6.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(tiles.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(sizes) + 1) - 0.5, minor=True)
    axes.grid(which="minor", axis="both", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    for number, network in enumerate(networks):
        if number:
            axes.axvline(number * len(visitors) - 0.5, color="#555555", linewidth=0.9)
        middle = (number + 0.5) * len(visitors) - 0.5
        axes.text(middle, len(sizes) - 0.4, network, ha="center", va="bottom", fontsize=6.5, color="#555555")
    lost, won = sum(one.lost for one in losses), sum(one.won for one in losses)
    axes.set_xlabel(f"lost at {lost}, won at {won} of {len(losses)} points", fontsize=7)


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _sentences(found: Any) -> list[str]:
    lines = [
        "A tile is an operating point: objects at the edge of classes in the cloud upwards, visitors to the "
        "right in each network. Grey: within chance, or less than anybody notices. Numbers: the loss in ms, "
        "kbit/s or % of the edge's cores."
    ]
    for metric in SHOWN:
        one = found[metric]
        name = _capital(METRICS[metric].title)
        if not one["regions"]:
            said = "is lost nowhere" if not one["lost"] else f"is lost in no region; {one['lost']} points"
            lines.append(f"{name} {said}.")
            continue
        lines.append(
            f"{name} is lost here (decision tree; right at {one['unseen_accuracy']:.0%} of the points that "
            f"it did not see, {one['always']:.0%} without a tree):"
        )
        lines.extend(f"   \u2022 {region['sentence']}" for region in one["regions"])
    return [part for line in lines for part in textwrap.wrap(line, _TEXT_WIDTH, subsequent_indent="      ")]
