"""The picture of the experiment ``peers``: a group that dies, and what an edge sends to those that share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from nearsight.experiments.framework.drawing import Picture, new_picture, plain_logarithmic
from nearsight.experiments.framework.experiment import Results, StoredRow
from nearsight.experiments.studies.peers.peer_endurance import GONE, HANDED_OVER, MISCOUNTED, UNREADABLE
from nearsight.experiments.studies.peers.peer_prefetching import ALONE, PHOTO, SHARING
from nearsight.experiments.studies.peers.peers import PREFETCHING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {ALONE: "#c2571a", SHARING: "#1f6f8b"}
_NOTICED, _HANDED = "#e0a33a", "#1f6f8b"


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    rows = results.rows
    found = results.metrics
    picture = new_picture(12.0, 3.9)
    deaths, traffic, latency = picture.subplots(1, 3, width_ratios=[1.5, 0.8, 1.2])
    _deaths(deaths, rows, found["nothing_lost"])
    _traffic(traffic, found["prefetching"])
    _latency(latency, rows, found["prefetching"])
    return picture


def _deaths(axes: Axes, rows: Sequence[StoredRow], found: Mapping[str, Any]) -> None:
    def by_death(kind: str) -> dict[int, float]:
        return {int(row["death"]): float(row["value"]) for row in rows if row["kind"] == kind}

    noticed, handed = by_death(GONE), by_death(HANDED_OVER)
    lost = {death: int(count) for death, count in by_death(UNREADABLE).items()}
    miscounted = by_death(MISCOUNTED)
    x = np.array(sorted(noticed))
    first = np.array([noticed[death] for death in x])
    axes.bar(x, first, color=_NOTICED, label="until all have noticed")
    then = [handed[death] for death in x]
    axes.bar(x, then, bottom=first, color=_HANDED, label="until every key is on two devices again")
    for death, height in zip(x, first + np.array(then), strict=True):
        if lost[death] or miscounted[death]:
            axes.text(
                death, height, f"{lost[death]} lost", color="#b00020", ha="center", va="bottom", fontsize=7
            )
    axes.set_title(f"{found['deaths']} of {found['nodes']} devices die one after another", fontsize=9)
    verdict = f"keys that cannot be read: {found['unreadable']}, counters off by {found['miscounted']}"
    axes.set(xlabel=f"death\n{verdict}", ylabel="time after the death [s]")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(y=0.3)
    axes.legend(loc="upper left", fontsize=8)


def _traffic(axes: Axes, found: Mapping[str, Any]) -> None:
    names = [ALONE, SHARING]
    megabytes = [found[name]["edge_model_bytes"] / 1e6 for name in names]
    share = megabytes[1] / megabytes[0] if megabytes[0] else 0.0
    nearby = [found[name]["peer_model_bytes"] / 1e6 for name in names]
    axes.bar(names, megabytes, color=[_COLOURS[name] for name in names], width=0.6)
    axes.bar(names, nearby, bottom=megabytes, color="#d0d0d0", width=0.6)
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
    axes.text(0, 0.5 * megabytes[0], f"{megabytes[0]:.2f}", color="white", **middle)
    axes.text(1, 0.5 * megabytes[1], f"{megabytes[1]:.2f}\n{100 * share:.0f} %", color="white", **middle)
    axes.text(1, megabytes[1] + 0.5 * nearby[1], f"from peers\n{nearby[1]:.2f}", **middle)
    axes.set(ylabel="models [MB]")
    axes.set_title("Models from the edge, in colour", fontsize=9)


def _latency(axes: Axes, rows: Sequence[StoredRow], found: Mapping[str, Any]) -> None:
    photos = [row for row in rows if row["part"] == PREFETCHING and row["kind"] == PHOTO]
    for name in (ALONE, SHARING):
        values = [float(r["value"]) for r in photos if r["devices"] == name and r["answered_by"]]
        shares = np.arange(1, len(values) + 1) / len(values)
        one = found[name]
        label = f"{name}: p50 {one['p50_ms']:.1f}, p95 {one['p95_ms']:.0f} ms, recall {one['recall']:.3f}"
        axes.step(np.sort(values), shares, where="post", color=_COLOURS[name], label=label)
    axes.set(xscale="log", xlabel="latency [ms]", ylabel="share answered within …", ylim=(0, 1.02))
    plain_logarithmic(axes.xaxis)
    axes.set_title("Latency of recognition", fontsize=9)
    axes.legend(loc="lower right", fontsize=8)
