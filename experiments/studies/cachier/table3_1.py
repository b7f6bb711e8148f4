"""Table 3.1: recall(k) as a straight line, for LSH, brute force and our backends (dissertation, 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nearsight.experiments.framework.experiment import Target
from nearsight.experiments.studies.cachier.fig3_4 import precision_target
from nearsight.experiments.studies.cachier.fitted_table import FittedTable, Line
from nearsight.experiments.studies.cachier.offline_analysis import LSH, OURS

_TOLERANCE = 0.02


class Figure(FittedTable):
    """recall(k), fitted; uses the rows of fig3.4."""

    name: ClassVar[str] = "table3.1"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1.3"
    quantity: ClassVar[str] = "recall"
    what: ClassVar[str] = "recall(k)"
    digits: ClassVar[int] = 5
    paper: ClassVar[Mapping[str, Mapping[str, Line]]] = {
        "flann-lsh": {"Stanford": (0.90, -0.00014), "UMiss": (0.88, -0.00013)},
        "brute-force": {"Stanford": (0.66, -0.00013), "UMiss": (0.78, -0.00021)},
    }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        at_all = {name: one["points"][-1]["recall"] for name, one in summary["algorithms"].items()}
        ahead = at_all[OURS] - at_all[LSH]
        text = "all objects: recall of the default minus that of LSH, at least -0.02"
        return (Target(text, ahead, ahead >= -_TOLERANCE), precision_target(summary))

    def _finish(self, axes: Any) -> None:
        axes.set_ylim(0.4, 1.02)
