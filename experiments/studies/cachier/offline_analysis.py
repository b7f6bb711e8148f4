"""The offline analysis of algorithms (dissertation, 3.3.1), measured once for figure 3.4, tables 3.1 and 3.2.

All algorithms go through the same pipeline (ratio test, votes, verification) and differ in the search for
nearest neighbours alone. They get the same random subsets and the same photos. Times are CPU times of one
thread, after extraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.experiments.framework.experiment import Cell, Experiment, Row, RunOptions, StoredRow
from nearsight.experiments.studies.cachier.museums import dataset_of, museum_of

if TYPE_CHECKING:
    from nearsight.experiments.profiling.measuring import PreparedData, ProfilingPlan, SubsetRow

LSH, BRUTE_FORCE, OURS, EXACT = "flann-lsh", "brute-force", "auto", "exact"
BACKENDS = (LSH, BRUTE_FORCE, EXACT, OURS)
TITLES = {
    LSH: "LSH (FLANN)",
    BRUTE_FORCE: "BF (OpenCV)",
    EXACT: "exact (FAISS)",
    OURS: "default (multihash)",
}
"""How the algorithms are called in pictures and tables."""

QUANTITIES = ("lookup_ms", "recall", "precision")
_SUBSETS, _SMOKE_SUBSETS = 8, 2
_RELEVANT, _NOISE, _SMOKE_QUERIES = 20, 100, 4
_PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_BRUTE_FORCE_UP_TO = 50
"""Beyond, brute force alone would take longer than all the others; its f(k) is a straight line."""


class OfflineAnalysis(Experiment):
    """Measures every algorithm on the same random subsets of a data set."""

    takes_data = True

    def __init__(self) -> None:
        self._prepared: PreparedData | None = None

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        # Subset by subset: a machine that is busy for a while slows all algorithms alike.
        return tuple(
            Cell(f"{subset:02d}-{backend}", {"backend": backend, "subset": subset})
            for subset in range(subsets_of(options))
            for backend in BACKENDS
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
        from nearsight.experiments.profiling.measuring import measure, prepare  # noqa: PLC0415

        backend, subset = str(cell.parameters["backend"]), int(cell.parameters["subset"])
        settings = RecognitionSettings(backend=backend)
        if self._prepared is None:
            self._prepared = prepare(dataset_of(options, museum_of(options)), settings, nothing)
        data = self._prepared
        plan = subset_plan(options, "offline analysis", subset, _sizes(len(data.models), backend))
        measured = measure(data, plan, settings, nothing)
        return [
            {"algorithm": backend, "objects": len(data.models), **asdict(replace(row, subset=subset))}
            for row in measured
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per algorithm: points over k, and a + b · k for f, recall and precision."""
        found = {
            algorithm: _algorithm([subset_row(row) for row in rows if row["algorithm"] == algorithm])
            for algorithm in dict.fromkeys(row["algorithm"] for row in rows)
        }
        return {"objects": int(rows[0]["objects"]), "algorithms": found}


def slope_ratio(summary: Mapping[str, Any], algorithm: str = OURS) -> float:
    """Slope of f per object, over that of FLANN's LSH."""
    slopes = {name: one["lookup_ms"]["b"] for name, one in summary["algorithms"].items()}
    return float(slopes[algorithm] / max(slopes[LSH], _TINY))


_TINY = 1e-9


def line(fit: Mapping[str, float], digits: int) -> str:
    """The line a + b k, for a person."""
    sign = "-" if fit["b"] < 0 else "+"
    return f"{fit['a']:.2f} {sign} {abs(fit['b']):.{digits}f} k"


def subsets_of(options: RunOptions) -> int:
    """Random subsets per cache size; 8 as in the dissertation."""
    return _SMOKE_SUBSETS if options.smoke else _SUBSETS


def subset_plan(options: RunOptions, purpose: str, subset: int, sizes: Sequence[int]) -> ProfilingPlan:
    """One random subset of each size; the same objects and photos for all that share purpose and subset."""
    from nearsight.experiments.profiling.measuring import ProfilingPlan  # noqa: PLC0415

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


def nothing(_steps: int) -> None:
    """Show no progress within a cell."""


def subset_row(row: StoredRow) -> SubsetRow:
    """A row as it was measured."""
    from nearsight.experiments.profiling.measuring import SubsetRow  # noqa: PLC0415

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


def _algorithm(rows: Sequence[SubsetRow]) -> dict[str, Any]:
    from nearsight.experiments.profiling.measuring import summarize  # noqa: PLC0415

    points = [point.model_dump() for point in summarize(rows)]
    return {"points": points, **{name: straight_line(rows, name) for name in QUANTITIES}}


def straight_line(rows: Sequence[SubsetRow], name: str) -> dict[str, float]:
    """The line a + b k over all rows, b's spread between subsets, and the degree that validation picks.

    Parameters
    ----------
    rows : sequence of SubsetRow
        Of one algorithm.
    name : str
        One of `QUANTITIES`.
    """
    from nearsight.experiments.profiling.measuring import fit_polynomial  # noqa: PLC0415

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
