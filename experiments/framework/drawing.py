"""The style of all figures, and elements that many figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from nearsight.common.errors import ConfigurationError
from nearsight.common.files import check_writable, write_atomically

Picture = Figure
"""A matplotlib figure. The name avoids confusion with experiments, which are figures of a paper."""

SEQUENCE = ("#c2571a", "#e0a33a", "#1f6f8b", "#24415c")
"""Colours of ordered series, such as top 1, 3, 5 and 8; distinguishable in greyscale too."""

TIER_COLOURS = {"device": "#7a9e3b", "edge": "#1f6f8b", "cloud": "#c2571a"}

STYLE: Any = {  # The type of rc_context's keys differs between versions of matplotlib.
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
    """Return an empty picture; width and height are in inches."""
    return Picture(figsize=(width, height), layout="constrained")


def check_picture(path: Path) -> None:
    """Check the format and the place of a picture, before a measurement.

    Raises
    ------
    ConfigurationError
        If the format is unknown.
    OSError
        If the file cannot be written.
    """
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in formats:
        raise ConfigurationError(
            f"cannot write the picture {path}: its suffix is none of {', '.join(sorted(formats))}",
            advice="give another file with --figure",
        )
    check_writable(path)


def picture_path(path: Path) -> Path:
    """The file that `save` writes: .png is added to a name without an end."""
    return path if path.suffix else path.with_name(f"{path.name}.png")


def save(picture: Picture, path: Path, dpi: int = 160) -> None:
    """Write a picture to `picture_path`, in the format that the end of the name states.

    Raises
    ------
    OSError
        If it cannot be written. A file that existed is unchanged.
    ValueError
        If the format is unknown.
    """
    path = picture_path(path)
    data = BytesIO()
    picture.savefig(data, format=path.suffix[1:], dpi=dpi)
    write_atomically(path, data.getvalue())


def capital(text: str) -> str:
    """Return the text with a capital first letter, for a title."""
    return f"{text[:1].upper()}{text[1:]}"


def caption(picture: Any, text: str) -> None:
    """Write a line above all panels that describes the measurement."""
    picture.suptitle(text, fontsize=8, color="#555555")


def legend_below(picture: Any, axes: Axes, columns: int = 0, **more: Any) -> None:
    """Draw one legend for all panels: the lines of ``axes``, and the handles in ``more`` by label."""
    handles, labels = axes.get_legend_handles_labels()
    handles, labels = [*handles, *more.values()], [*labels, *more]
    picture.legend(handles, labels, loc="outside lower center", ncols=columns or len(labels))


def error_bars(found: Sequence[Mapping[str, float]], middle: str = "mean") -> tuple[Any, Any]:
    """Error bars of repeated measurements: middles (N,), and distances to minimum and maximum (2, N).

    ``found`` are summaries such as those of `numbers.mean_and_spread`; ``middle`` is the key of the middle.
    """
    at, least, most = (np.array([one[name] for one in found], dtype=float) for name in (middle, "min", "max"))
    return at, np.maximum(0.0, [at - least, most - at])


def distribution(axes: Axes, values: Sequence[float], *, whole: int | None = None, **line: Any) -> None:
    """Draw the empirical distribution function of the values.

    ``whole`` is their number including those that are not known, such as latencies of requests without an
    answer; None: all are known.
    """
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / max(1, len(ordered) if whole is None else whole)
    axes.step(ordered, shares, where="post", **line)


def latency_distributions(axes: Axes) -> None:
    """Set scales and labels of a panel of latency distributions."""
    axes.set(xlabel="latency [ms]", ylabel="share answered within …", ylim=(0, 1.02))
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
    """Draw one horizontal stacked bar per name, the first name at the top.

    Parameters
    ----------
    axes : Axes
    names : sequence of str, length N
    parts : mapping of str to sequence of float, length N
        Lengths of the parts, by their label in the legend.
    colours : mapping of str to str
        Colours of the parts, by label.
    height : float
        Height of a bar; at 1 the bars touch.
    numbers : str
        Colour of the numbers inside the parts; empty: no numbers.
    least : float
        Smallest part that has a number.
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
    """Mark phases of equal length along x: a line at the start of each, and its name at the top."""
    for place, name in enumerate(names):
        axes.axvline(place * length, color="#8a8a8a", linewidth=0.8, linestyle=":")
        axes.text(
            (place + 0.02) * length, 1.0, name, fontsize=7, va="top", transform=axes.get_xaxis_transform()
        )
    axes.set_xlim(0, len(names) * length)


def plain_logarithmic(axis: Axis) -> None:
    """Make an axis logarithmic, with ticks at 1, 2 and 5 of each decade, written as plain numbers.

    An axis that spans less than a decade has more ticks.
    """
    if axis.get_scale() not in {"log", "functionlog"}:  # the latter: a secondary axis of a logarithmic one
        if axis is axis.axes.xaxis:
            axis.axes.set_xscale("log")
        else:
            axis.axes.set_yscale("log")

    class _Ticks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            # With ticks at 1, 2 and 5 alone, an axis from 15 to 70 ms would have only two.
            close = vmin > 0 and vmax < _ONE_DECADE * vmin
            self.set_params(subs=(1, 1.5, 2, 3, 4, 5, 6, 8) if close else (1, 2, 5))
            return super().tick_values(vmin, vmax)

    axis.set_major_locator(_Ticks())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def whole_numbers(axis: Axis) -> None:
    """Place ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True))
