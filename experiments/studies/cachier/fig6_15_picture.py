"""The picture of figure 6.15: mean latency of each node's gets with its deviation, one panel per setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from nearsight.experiments.framework.drawing import (
    Picture,
    caption,
    legend_below,
    new_picture,
    plain_logarithmic,
)
from nearsight.experiments.framework.experiment import Results, StoredRow
from nearsight.experiments.rig.peer_group import LOOPBACK
from nearsight.experiments.rig.peer_process import KADEMLIA, NEARSIGHT
from nearsight.experiments.studies.cachier.fig6_15 import LEAST_GETS, OVER_NETWORK, mean_per_node

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {NEARSIGHT: "#1f6f8b", KADEMLIA: "#c2571a"}
_MARKERS = {NEARSIGHT: "o", KADEMLIA: "s"}
_SHIFT = {NEARSIGHT: -0.15, KADEMLIA: 0.15}
_COLUMNS = 2
_LEAST_MS = 0.01
"""The axis is logarithmic: a deviation as large as the mean ends at its edge."""
_ROOM = 20.0


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    rows = results.rows
    found = results.metrics
    settings = found["settings"]
    lines = -(-len(settings) // _COLUMNS)
    picture = new_picture(11.0, 3.4 * lines + 0.7)
    panels = picture.subplots(lines, _COLUMNS, squeeze=False, sharey=True).ravel()
    for axes, (setting, numbers) in zip(panels, settings.items(), strict=False):
        _panel(axes, [row for row in rows if row["setting"] == setting], numbers)
    highest_ms = max(axes.dataLim.ymax for axes in panels[: len(settings)])
    panels[0].set_ylim(_LEAST_MS, _ROOM * highest_ms)  # of all: they share the axis
    for axes in panels[len(settings) :]:
        axes.set_visible(False)
    for axes in panels[::_COLUMNS]:
        axes.set_ylabel("latency of a get [ms]")
    legend_below(picture, panels[0], 2)
    caption(picture, _caption(rows[0]))
    return picture


def _panel(axes: Axes, rows: Sequence[StoredRow], numbers: Mapping[str, Any]) -> None:
    title = [str(numbers["title"])]
    for system, one in numbers["systems"].items():
        means = mean_per_node(row for row in rows if row["system"] == system)
        x = np.arange(1, len(means) + 1) + _SHIFT[system]
        mean = np.array([value[0] for value in means.values()])
        deviation = np.array([value[1] for value in means.values()])
        below = np.minimum(deviation, np.maximum(mean - _LEAST_MS, 0.0))
        axes.errorbar(
            x,
            mean,
            [below, deviation],
            fmt=_MARKERS[system],
            color=_COLOURS[system],
            markersize=4,
            elinewidth=0.8,
            capsize=1.5,
            label=f"{system}: mean of each node, with standard deviation",
        )
        network = one[OVER_NETWORK]
        own = one["gets"] - network["count"]
        read = f"{system}: {own} of {one['gets']} gets from own storage"
        if network["count"] >= LEAST_GETS:
            read += f"; network p50 {network['p50_ms']:.2f}, p99 {network['p99_ms']:.1f} ms"
        if one["failed"]:
            read += f"; {one['failed']} of {one['gets']} failed"
        title.append(read)
    axes.set_title(title[0])
    axes.text(
        0.01, 0.98, "\n".join(title[1:]), transform=axes.transAxes, va="top", fontsize=7, color="#444444"
    )
    axes.set(yscale="log", xlabel="node")
    plain_logarithmic(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _caption(row: StoredRow) -> str:
    where = (
        f"one network namespace per node, {float(row['rate_mbps']):g} Mbit/s links, nearsight encrypted"
        if row["place"] != LOOPBACK
        else "all nodes on loopback"
    )
    return f"The same keys of {row['value_bytes']} bytes and the same requests for both stores; {where}"
