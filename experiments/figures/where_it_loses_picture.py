"""The map: a tile per operating point, coloured by what the full system loses or gains there.

Small maps side by side: a row per metric, a column per pair of machines. In each, visitors grow to the right
within a network, sections and classes upwards. White is level: within chance, or less than anybody notices.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure as Picture

from nearsight.experiments.figures.loss_grid import MACHINES
from nearsight.experiments.figures.losses import METRICS, Loss, losses_of
from nearsight.experiments.figures.result_files import ResultFolder
from nearsight.experiments.figures.style import STYLE
from nearsight.experiments.scale.operating_point import NETWORKS
from nearsight.experiments.simulation.session import ADAPTIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("p50", "p95", "bytes", "edge")
_COLOURS = LinearSegmentedColormap.from_list(
    "losses", ["#1f6f8b", "#9cc4d0", "#ffffff", "#efb08a", "#c2571a"]
)
_NORM = TwoSlopeNorm(0.0, -1.0, 1.0)
"""Of the ratio's logarithm to base 2: half and twice."""
_LINE: Any = {"color": "#555555", "linewidth": 0.9}
_TEXT_WIDTH = 178


def draw(folder: Path, file_name: str) -> Path:
    """Draw the map from the rows and the summary in a folder; returns its path."""
    files = ResultFolder(folder)
    rows, found = files.rows(), files.summary()["metrics"]
    losses = {metric: losses_of(rows, ADAPTIVE, metric) for metric in SHOWN}
    played = {one.place.machines for one in losses[SHOWN[0]]}
    machines = [name for name in MACHINES if name in played]
    sentences = _sentences(found["systems"][ADAPTIVE])
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        picture = Picture(figsize=(12.0, 9.2 + 0.19 * len(sentences)), layout="constrained")
        parts: Any = picture.subfigures(2, 1, height_ratios=[9.2, 0.19 * len(sentences) + 0.3])
        maps, words = parts
        panels = maps.subplots(len(SHOWN), len(machines), squeeze=False)
        for row, metric in zip(panels, SHOWN, strict=True):
            for axes, name in zip(row, machines, strict=True):
                mine = [one for one in losses[metric] if one.place.machines == name]
                _draw_map(axes, mine, last=metric == SHOWN[-1])
                lost = sum(one.lost for one in mine)
                axes.set_title(f"lost at {lost} of {len(mine)}", loc="right", fontsize=8, fontweight="normal")
            metric_name = METRICS[metric].title
            row[0].set_title(f"{metric_name[0].upper()}{metric_name[1:]}")
        for axes, name in zip(panels[0], machines, strict=True):
            axes.annotate(
                f"{name[0].upper()}{name[1:]}",
                (0.5, 1.28),
                xycoords="axes fraction",
                ha="center",
                fontsize=10,
                fontweight="bold",
            )
        scale = mpl.cm.ScalarMappable(_NORM, _COLOURS)
        bar = maps.colorbar(scale, ax=panels, location="right", shrink=0.5, aspect=30, pad=0.01)
        bar.set_ticks([-1, -np.log2(1.25), 0, np.log2(1.25), 1])
        bar.set_ticklabels(["half\nor less", "-20 %", "level", "+25 %", "twice\nor more"])
        bar.set_label("full system over the best simpler configuration", fontsize=8)
        words.text(0.01, 0.97, "\n".join(sentences), va="top", fontsize=8, linespacing=1.35)
        path = folder / file_name
        picture.savefig(path, dpi=160)
    return path


def _draw_map(axes: Axes, losses: Sequence[Loss], *, last: bool) -> None:
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
        tiles[line, column] = np.clip(np.log2(one.ratio), -1, 1)
        if one.lost:
            axes.text(column, line, f"+{one.difference:.2g}", ha="center", va="center", fontsize=5.5)
    axes.imshow(tiles, cmap=_COLOURS, norm=_NORM, origin="lower", aspect="auto", interpolation="none")
    axes.set_xticks(range(tiles.shape[1]), [str(count) for _ in networks for count in visitors], fontsize=7)
    axes.set_yticks(range(len(sizes)), [f"{44 * one} of {classes}" for one, classes in sizes], fontsize=6.5)
    axes.tick_params(length=0)
    for number in range(1, len(networks)):
        axes.axvline(number * len(visitors) - 0.5, **_LINE)
    for border in range(1, len(sizes)):
        if sizes[border][0] != sizes[border - 1][0]:
            axes.axhline(border - 0.5, color="#bbbbbb", linewidth=0.6)
    if not last:
        return
    for number, network in enumerate(networks):
        middle = (number + 0.5) / len(networks)
        axes.annotate(
            f"visitors\n{network} network",
            (middle, -0.17),
            xycoords="axes fraction",
            ha="center",
            va="top",
            fontsize=7.5,
        )


def _sentences(found: Any) -> list[str]:
    lines = [
        "Where the full system (prefetching, adaptive extraction, bounded edge) loses to the best simpler "
        "configuration; tiles: objects at the edge of classes in the cloud; numbers: the loss in ms, kbit/s, "
        "% of the cores"
    ]
    for metric in SHOWN:
        one = found[metric]
        title = METRICS[metric].title
        if not one["regions"]:
            said = "nowhere" if not one["lost"] else f"no region; {one['lost']} scattered points"
            lines.append(f"{title[0].upper()}{title[1:]}: {said}.")
            continue
        lines.append(
            f"{title[0].upper()}{title[1:]} (decision tree, right at {one['unseen_accuracy']:.0%} of points "
            f"that it did not see, {one['always']:.0%} without a tree):"
        )
        lines.extend(f"   • {region['sentence']}" for region in one["regions"])
    return [part for line in lines for part in textwrap.wrap(line, _TEXT_WIDTH, subsequent_indent="     ")]
