"""How all figures look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis

SEQUENCE = ("#c2571a", "#e0a33a", "#1f6f8b", "#24415c")
"""Colours of ordered things, such as top 1, 3, 5 and 8; distinct in grey, too."""

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


def plain_logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2, 5 of every power of ten, written as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
