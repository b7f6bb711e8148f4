"""How all figures look."""

from __future__ import annotations

from typing import Any

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
