"""Table 3.2: f(k) as a straight line, for LSH, brute force and our backends (dissertation, 3.3.1.4).

The paper's times are of a PC of its time, ours of one thread of this machine: slopes of one run compare with
each other, not with the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nearsight.experiments.framework.drawing import plain_logarithmic
from nearsight.experiments.framework.experiment import Target
from nearsight.experiments.studies.cachier.fig3_4 import slope_target
from nearsight.experiments.studies.cachier.fitted_table import FittedTable, Line


class Figure(FittedTable):
    """f(k), fitted; uses the rows of fig3.4."""

    name: ClassVar[str] = "table3.2"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1.4"
    quantity: ClassVar[str] = "lookup_ms"
    what: ClassVar[str] = "f(k) [ms]"
    digits: ClassVar[int] = 4
    paper: ClassVar[Mapping[str, Mapping[str, Line]]] = {
        "flann-lsh": {"Stanford": (51.14, 1.87), "UMiss": (6.18, 2.21)},
        "brute-force": {"Stanford": (60.52, 10.42), "UMiss": (21.88, 11.77)},
    }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return (slope_target(summary),)

    def _finish(self, axes: Any) -> None:
        axes.set_yscale("log")
        plain_logarithmic(axes.yaxis)
