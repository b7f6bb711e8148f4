"""The offline analysis of algorithms (dissertation, 3.3.1): measurement, numbers and panels.

All algorithms use the same pipeline (ratio test, votes, verification) and differ only in the search for
nearest neighbours. They get the same random subsets and the same photos. Times are CPU times of one thread,
after extraction. `fig3_4` shows the results; `feature_tradeoff` measures devices in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Cell, Row, RunOptions, StoredRow, cells_of
from nearsight.experiments.framework.numbers import nested
from nearsight.experiments.profiling.measuring import (
    PreparedData,
    ProfilingPlan,
    SubsetRow,
    fit_polynomial,
    measure,
    no_progress,
    prepare,
    summarize,
)
from nearsight.experiments.studies.museums import OnDataSet, dataset_of, museum_of

LSH, BRUTE_FORCE, OURS, EXACT = "flann-lsh", "brute-force", "auto", "exact"
BACKENDS = (LSH, BRUTE_FORCE, EXACT, OURS)
TITLES = {
    LSH: "LSH (FLANN)",
    BRUTE_FORCE: "BF (OpenCV)",
    EXACT: "exact (FAISS)",
    OURS: "default (multihash)",
}
"""Names of the algorithms in pictures and tables."""

QUANTITIES = ("lookup_ms", "recall", "precision")
_SUBSETS, _SMOKE_SUBSETS = 8, 2
_RELEVANT, _NOISE, _SMOKE_QUERIES = 20, 100, 4
_PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_BRUTE_FORCE_UP_TO = 50
"""Largest size for brute force; beyond, it would take longer than all others, and its f(k) is a straight
line."""

_SHIFT = 0.006
"""Horizontal distance between curves of recall and precision, in panel widths; several often coincide."""
_LOWEST = 0.5


class OfflineAnalysis(OnDataSet):
    """Measures every algorithm on the same random subsets of a data set."""

    def __init__(self) -> None:
        self._prepared: PreparedData | None = None

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """One cell per subset and algorithm, subset by subset: a busy period slows all algorithms equally."""
        return cells_of("{subset:02d}-{backend}", subset=range(subsets_of(options)), backend=BACKENDS)

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:
        """Measure one algorithm on a random subset of each size; one row per size."""
        backend, subset = cell.parameters["backend"], cell.parameters["subset"]
        settings = RecognitionSettings(backend=backend)
        if self._prepared is None:
            self._prepared = prepare(dataset_of(options, museum_of(options)), settings, no_progress)
        data = self._prepared
        plan = subset_plan(options, "offline analysis", subset, _sizes(len(data.models), backend))
        return [
            {"algorithm": backend, "objects": len(data.models), **asdict(replace(row, subset=subset))}
            for row in measure(data, plan, settings, no_progress)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per algorithm: points over k, and a + b · k for f, recall and precision."""
        return {"objects": int(rows[0]["objects"]), "algorithms": nested(rows, ("algorithm",), _algorithm)}


def line(fit: Mapping[str, float], digits: int) -> str:
    """Format the line a + b k."""
    sign = "-" if fit["b"] < 0 else "+"
    return f"{fit['a']:.2f} {sign} {abs(fit['b']):.{digits}f} k"


def subsets_of(options: RunOptions) -> int:
    """Number of random subsets per cache size; 8 as in the dissertation."""
    return _SMOKE_SUBSETS if options.smoke else _SUBSETS


def subset_plan(options: RunOptions, purpose: str, subset: int, sizes: Sequence[int]) -> ProfilingPlan:
    """Plan one random subset of each size.

    The objects and photos are the same for all plans with equal ``purpose`` and ``subset``.
    """
    return ProfilingPlan(
        tuple(sizes),
        subsets=1,
        relevant=_SMOKE_QUERIES if options.smoke else _RELEVANT,
        noise=_SMOKE_QUERIES if options.smoke else _NOISE,
        seed=int(options.rng(purpose, subset).integers(2**31)),
    )


def _sizes(objects: int, backend: str) -> tuple[int, ...]:
    sizes = sorted({1, *(max(1, round(objects * part)) for part in _PARTS)})
    if backend == BRUTE_FORCE:
        return tuple(size for size in sizes if size <= _BRUTE_FORCE_UP_TO)
    return tuple(sizes)


def subset_row(row: StoredRow) -> SubsetRow:
    """Parse a stored row."""
    return SubsetRow(
        k=int(row["k"]),
        subset=int(row["subset"]),
        backend=row["backend"],
        relevant=int(row["relevant"]),
        noise=int(row["noise"]),
        lookup_ms=float(row["lookup_ms"]),
        recall=float(row["recall"]),
        precision=float(row["precision"]),
    )


def _algorithm(rows: Sequence[StoredRow]) -> dict[str, Any]:
    measured = [subset_row(row) for row in rows]
    return {"points": points_of(measured), **{name: straight_line(measured, name) for name in QUANTITIES}}


def points_of(rows: Sequence[SubsetRow]) -> list[dict[str, Any]]:
    """Mean and deviation of each quantity over k; sizes with an unknown quantity are left out."""
    points = (point.model_dump() for point in summarize(rows))
    return [point for point in points if None not in point.values()]


def straight_line(rows: Sequence[SubsetRow], name: str) -> dict[str, float]:
    """Fit a + b k to all rows, with b's spread between subsets and the degree chosen by validation.

    Parameters
    ----------
    rows : sequence of SubsetRow
        Rows of one algorithm.
    name : str
        One of `QUANTITIES`.
    """
    slopes = []
    for subset in sorted({row.subset for row in rows}):
        alone = fit_polynomial([row for row in rows if row.subset == subset], name, (1,))
        slopes.append(alone[1] if len(alone) > 1 else 0.0)
    coefficients = fit_polynomial(rows, name, (1,))
    return {
        "a": coefficients[0],
        "b": coefficients[1] if len(coefficients) > 1 else 0.0,
        "b_std": float(np.std(slopes, ddof=1)) if len(slopes) > 1 else 0.0,
        "degree": len(fit_polynomial(rows, name)) - 1,
    }


def point_rows(title: str, points: Sequence[Mapping[str, float]], time: str) -> list[tuple[object, ...]]:
    """Lines of a table: k, and time, recall and precision with their deviation."""
    quantities = ((time, 2), ("recall", 3), ("precision", 3))
    return [
        (
            title,
            one["k"],
            *(f"{one[name]:.{digits}f} ± {one[f'{name}_std']:.{digits}f}" for name, digits in quantities),
        )
        for one in points
    ]


@dataclass(frozen=True, slots=True)
class Series:
    """One curve in all three panels."""

    label: str
    colour: str
    marker: str
    """Its style, the same in all pictures."""
    points: Sequence[Mapping[str, float]]
    """``k``, and mean and deviation of each quantity: ``recall``, ``recall_std`` and so on."""


def draw_analysis(
    series: Sequence[Series], time: str, label: str, text: str, *, logarithmic: bool
) -> drawing.Picture:
    """Draw time, recall and precision over k, with a caption.

    Parameters
    ----------
    series : sequence of Series
        The curves.
    time, label : str
        Name of the time in the points, and label of its axis.
    text : str
        Description of the measurement, for the caption.
    logarithmic : bool
        Whether the axis of the time is logarithmic, for times that differ by orders of magnitude.
    """
    picture = drawing.new_picture(10.5, 3.9)
    latency, recall, precision = picture.subplots(1, 3)
    for axes, quantity in ((latency, time), (recall, "recall"), (precision, "precision")):
        _draw(axes, series, quantity)
    latency.set(title="Time to recognise", ylabel=label)
    if logarithmic:
        latency.set_yscale("log")
        drawing.plain_logarithmic(latency.yaxis)
    else:
        latency.set_ylim(0, None)
    for axes, quantity in ((recall, "recall"), (precision, "precision")):
        lowest = min(point[quantity] for one in series for point in one.points)
        axes.set(title=quantity.capitalize(), ylim=(min(_LOWEST, lowest - 0.05), 1.02))
    drawing.caption(picture, text)
    drawing.legend_below(picture, latency, 4)
    return picture


def _draw(axes: Axes, series: Sequence[Series], quantity: str) -> None:
    """Draw mean and deviation over the subsets of each size; error bars of shares end at 1."""
    widest = max(point["k"] for one in series for point in one.points)
    for place, one in enumerate(series):
        is_share = quantity in {"recall", "precision"}
        beside = (place - (len(series) - 1) / 2) * _SHIFT * widest * is_share
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
