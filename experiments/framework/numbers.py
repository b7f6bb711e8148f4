"""Numbers of experiments: groups and shares of rows, repeated measurements with their spread, Zipf's law."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import StoredRow


def grouped(rows: Iterable[StoredRow], column: str) -> dict[str, list[StoredRow]]:
    """Group rows by their value in a column, in order of first appearance; "" if the column is missing."""
    groups: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        groups[row.get(column, "")].append(row)
    return dict(groups)


def nested(
    rows: Sequence[StoredRow], columns: Sequence[str], summarise: Callable[[list[StoredRow]], Any]
) -> dict[str, Any]:
    """Group rows by several columns: ``{value of the first column: {value of the second: … summary}}``.

    ``summarise`` computes the summary of each innermost group.
    """
    first, *others = columns
    return {
        value: nested(group, others, summarise) if others else summarise(group)
        for value, group in grouped(rows, first).items()
    }


def leaves(found: Mapping[str, Any], depth: int) -> Iterator[tuple[Any, ...]]:
    """Flatten the result of `nested` with ``depth`` columns: the values of the columns, then the summary."""
    for value, rest in found.items():
        if depth == 1:
            yield value, rest
        else:
            yield from ((value, *leaf) for leaf in leaves(rest, depth - 1))


def values(rows: Iterable[StoredRow], column: str) -> list[float]:
    """The numbers in a column."""
    return [float(row[column]) for row in rows]


def share(flags: Iterable[bool]) -> float:
    """Share of the flags that are true, rounded to four decimals."""
    return round(float(np.mean(list(flags))), 4)


def mean_and_spread(values: Sequence[float]) -> dict[str, float]:
    """Summarise repeated measurements: mean, standard deviation, minimum, maximum and their number."""
    array = np.asarray(values, dtype=np.float64)
    return {
        "mean": round(float(array.mean()), 6),
        "std": round(float(array.std(ddof=1)), 6) if len(array) > 1 else 0.0,
        "min": round(float(array.min()), 6),
        "max": round(float(array.max()), 6),
        "runs": len(array),
    }


def median_and_range(values: Sequence[float]) -> dict[str, Any]:
    """Summarise repetitions whose outliers are caused by the machine: median, range and all values."""
    return {
        "median": round(float(np.median(values)), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "each": [round(value, 3) for value in values],
    }


def mean_in_words(value: Mapping[str, float], digits: int) -> str:
    """Format a result of `mean_and_spread` for a table."""
    return f"{value['mean']:.{digits}f} ± {value['std']:.{digits}f}"


def median_in_words(value: Mapping[str, float], digits: int) -> str:
    """Format a result of `median_and_range` for a table."""
    return f"{value['median']:.{digits}f} ({value['min']:.{digits}f} to {value['max']:.{digits}f})"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun in singular or plural: "1 run", "2 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation; equal numbers get their mean rank."""
    from scipy.stats import rankdata  # noqa: PLC0415  takes long to import, and few experiments need it

    return float(np.corrcoef(rankdata(np.asarray(a)), rankdata(np.asarray(b)))[0, 1])


def zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Zipf popularity of ``count`` objects by rank, the most popular first: (count,), the sum is 1.

    Raises
    ------
    InvalidArgument
        If the count is below 1.
    """
    if count < 1:
        raise InvalidArgument(f"a distribution needs at least one object, got {count}")
    weights: NDArray[np.float64] = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)
