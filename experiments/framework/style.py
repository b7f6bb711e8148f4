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
_ONE_DECADE = 10.0


def plain_logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2, 5 of every power of ten, more within a single one, written as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415

    class _Ticks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            # A picture from 15 to 70 ms would have two ticks.
            close = vmin > 0 and vmax < _ONE_DECADE * vmin
            self.set_params(subs=(1, 1.5, 2, 3, 4, 5, 6, 8) if close else (1, 2, 5))
            return super().tick_values(vmin, vmax)

    axis.set_major_locator(_Ticks())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
