"""How all figures look, and the parts that many of them draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

Picture = Figure
"""A figure of matplotlib; an experiment is a figure, too."""

SEQUENCE = ("#c2571a", "#e0a33a", "#1f6f8b", "#24415c")
"""Colours of ordered things, such as top 1, 3, 5 and 8; distinct in grey, too."""

TIER_COLOURS = {"device": "#7a9e3b", "edge": "#1f6f8b", "cloud": "#c2571a"}

STYLE: Any = {  # the keys that rc_context's type allows differ between versions of matplotlib
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
_ONE_DECADE = 10.0


def new_picture(width: float, height: float) -> Picture:
    """An empty picture; its size is in inches."""
    return Picture(figsize=(width, height), layout="constrained")


def capital(text: str) -> str:
    """With a capital letter, for a title."""
    return f"{text[:1].upper()}{text[1:]}"


def caption(picture: Any, text: str) -> None:
    """A line above all panels that says how it was measured."""
    picture.suptitle(text, fontsize=8, color="#555555")


def legend_below(picture: Any, axes: Axes, columns: int = 0, **more: Any) -> None:
    """One legend for all panels, of the lines in one of them and of ``more``."""
    handles, labels = axes.get_legend_handles_labels()
    handles, labels = [*handles, *more.values()], [*labels, *more]
    picture.legend(handles, labels, loc="outside lower center", ncols=columns or len(labels))


def middles(found: Sequence[Mapping[str, float]], middle: str = "mean") -> tuple[Any, Any]:
    """Of summaries of repeated measurements: the middles (N,), and how far down and up they reach (2, N)."""
    at, least, most = (np.array([one[name] for one in found], dtype=float) for name in (middle, "min", "max"))
    return at, np.maximum(0.0, [at - least, most - at])


def distribution(axes: Axes, values: Sequence[float], **line: Any) -> None:
    """The share of the values that are not larger, over the values."""
    ordered = np.sort(values)
    axes.step(ordered, np.arange(1, len(ordered) + 1) / max(1, len(ordered)), where="post", **line)


def latency_distributions(axes: Axes) -> None:
    """The scales and labels of a panel of latency distributions."""
    axes.set(xscale="log", xlabel="latency [ms]", ylabel="share answered within …", ylim=(0, 1.02))
    plain_logarithmic(axes.xaxis)


def stacked_bars(
    axes: Axes,
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    *,
    height: float = 0.8,
    numbers: str = "",
    least: float = 0.0,
) -> None:
    """A lying bar for each name, from the first at the top; its parts may say how large they are.

    Parameters
    ----------
    axes : Axes
    names : sequence of str, length N
    parts : mapping of str to sequence of float, length N
        By what the legend says of them.
    colours : mapping of str to str
        Of the parts.
    height : float
        Of a bar; 1 would touch the next.
    numbers : str
        Colour of the numbers; empty: there are none.
    least : float
        Smaller parts have no number.
    """
    places, left = np.arange(len(names)), np.zeros(len(names))
    for part, values in parts.items():
        bars = axes.barh(places, values, left=left, color=colours[part], height=height, label=part)
        if numbers:
            texts = [f"{value:.0f}" if value >= least else "" for value in values]
            axes.bar_label(bars, texts, label_type="center", color=numbers, fontsize=8)
        left += values
    axes.set_yticks(places, names)
    axes.invert_yaxis()


def phases(axes: Axes, names: Sequence[str], length: float) -> None:
    """Phases of equal length along x: a line where each begins, and its name at the top."""
    for place, name in enumerate(names):
        axes.axvline(place * length, color="#8a8a8a", linewidth=0.8, linestyle=":")
        axes.text(
            (place + 0.02) * length, 1.0, name, fontsize=7, va="top", transform=axes.get_xaxis_transform()
        )
    axes.set_xlim(0, len(names) * length)


def plain_logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2, 5 of every power of ten, more within a single one, written as plain numbers."""

    class _Ticks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            # A picture from 15 to 70 ms would have two ticks.
            close = vmin > 0 and vmax < _ONE_DECADE * vmin
            self.set_params(subs=(1, 1.5, 2, 3, 4, 5, 6, 8) if close else (1, 2, 5))
            return super().tick_values(vmin, vmax)

    axis.set_major_locator(_Ticks())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers alone."""
    axis.set_major_locator(MaxNLocator(integer=True))
