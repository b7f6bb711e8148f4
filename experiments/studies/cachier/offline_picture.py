"""The picture of an offline analysis: time, recall and precision over k, one curve per algorithm or setting.

Figures 3.4 and 4.4 are this picture of different rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearsight.experiments.framework.drawing import (
    Picture,
    caption,
    legend_below,
    new_picture,
    plain_logarithmic,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 0.006
"""How far curves of recall and precision are set apart, in widths of a panel: several often agree."""
_LOWEST = 0.5


@dataclass(frozen=True, slots=True)
class Series:
    """One curve in all three panels.

    Attributes
    ----------
    label, colour, marker : str
        How it looks, the same in all pictures.
    points : sequence of mappings
        ``k``, and mean and deviation of each quantity: ``recall``, ``recall_std`` and so on.
    """

    label: str
    colour: str
    marker: str
    points: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """What the first panel shows.

    Attributes
    ----------
    quantity : str
        Its name in the points.
    label : str
        With the unit.
    logarithmic : bool
        Where times differ by orders of magnitude.
    """

    quantity: str
    label: str
    logarithmic: bool


def draw_analysis(series: Sequence[Series], time: TimeAxis, text: str) -> Picture:
    """Draw the three panels, with a caption."""
    picture = new_picture(10.5, 3.9)
    latency, recall, precision = picture.subplots(1, 3)
    for axes, quantity in ((latency, time.quantity), (recall, "recall"), (precision, "precision")):
        _draw(axes, series, quantity)
    latency.set(title="Time to recognise", ylabel=time.label)
    if time.logarithmic:
        latency.set_yscale("log")
        plain_logarithmic(latency.yaxis)
    else:
        latency.set_ylim(0, None)
    for axes, quantity in ((recall, "recall"), (precision, "precision")):
        lowest = min(point[quantity] for one in series for point in one.points)
        axes.set(title=quantity.capitalize(), ylim=(min(_LOWEST, lowest - 0.05), 1.02))
    caption(picture, text)
    legend_below(picture, latency, 4)
    return picture


def _draw(axes: Axes, series: Sequence[Series], quantity: str) -> None:
    """Mean and deviation over the subsets of each size; no share is drawn above 1."""
    widest = max(point["k"] for one in series for point in one.points)
    for place, one in enumerate(series):
        is_share = quantity in {"recall", "precision"}
        beside = (place - (len(series) - 1) / 2) * _APART * widest * is_share
        means = [point[quantity] for point in one.points]
        spread = [point[f"{quantity}_std"] for point in one.points]
        above = [min(std, 1 - mean) for mean, std in zip(means, spread, strict=True)] if is_share else spread
        axes.errorbar(
            [point["k"] + beside for point in one.points],
            means,
            [spread, above],
            color=one.colour,
            marker=one.marker,
            markersize=4,
            linewidth=1.5,
            elinewidth=0.8,
            capsize=2,
            label=one.label,
        )
    axes.set(xlabel="objects in the cache, k", xlim=(-0.025 * widest, None))
