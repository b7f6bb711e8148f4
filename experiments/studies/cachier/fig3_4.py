"""Figure 3.4: latency, recall and precision of recognition over the number of objects (dissertation, 3.3.1).

The paper compares LSH with brute force on two data sets; here also FAISS's exact search and the default
backend. Fits are in table3.1 and table3.2, which use the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import Results, Target
from nearsight.experiments.studies.cachier.offline_analysis import (
    BACKENDS,
    OURS,
    TITLES,
    OfflineAnalysis,
    slope_ratio,
)
from nearsight.experiments.studies.cachier.offline_picture import Series, TimeAxis, draw_analysis

LEAST_PRECISION = 0.9
MOST_OF_LSH = 0.1
LOOKS = {
    "flann-lsh": ("#c2571a", "s"),
    "brute-force": ("#8a8a8a", "^"),
    "exact": ("#e0a33a", "D"),
    "auto": ("#1f6f8b", "o"),
}
"""Colour and marker of each algorithm, the same in all pictures."""


class Figure(OfflineAnalysis):
    """Latency, recall and precision over the cache size, for LSH, brute force and our backends."""

    name: ClassVar[str] = "fig3.4"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return (slope_target(summary), precision_target(summary))

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                TITLES[algorithm],
                point["k"],
                *(
                    f"{point[name]:.{digits}f} ± {point[f'{name}_std']:.{digits}f}"
                    for name, digits in (("lookup_ms", 2), ("recall", 3), ("precision", 3))
                ),
            )
            for algorithm, found in summary["algorithms"].items()
            for point in found["points"]
        ]
        return ("algorithm", "k", "f(k) [ms]", "recall", "precision"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        found = results.metrics
        series = [
            Series(TITLES[name], *LOOKS[name], found["algorithms"][name]["points"])
            for name in BACKENDS
            if name in found["algorithms"]
        ]
        caption = (
            f"{found['objects']} objects; means of random subsets of k, and their deviation; CPU "
            "times of one thread, after extraction; recall and precision are set apart a little"
        )
        time = TimeAxis("lookup_ms", "f(k) [ms], one thread", logarithmic=True)
        return draw_analysis(series, time, caption)


def slope_target(summary: Mapping[str, Any]) -> Target:
    """What the default backend must be better at than FLANN's LSH."""
    ratio = slope_ratio(summary)
    return Target("f's slope per object, default over LSH: at most 0.1", ratio, ratio <= MOST_OF_LSH)


def precision_target(summary: Mapping[str, Any]) -> Target:
    """The paper: "precision is constantly high (>90%) across cache sizes"."""
    lowest = min(point["precision"] for point in summary["algorithms"][OURS]["points"])
    return Target("default, lowest mean precision of any k: over 0.90", lowest, lowest > LEAST_PRECISION)
