"""The offline analysis (dissertation, 3.3.1): random subsets, numbers and panels.

`fig3_4` compares algorithms, `feature_tradeoff` numbers of features. All get the same random subsets and the
same photos. Times are CPU times of one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from pydantic import TypeAdapter

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import RunOptions, StoredRow
from nearsight.experiments.profiling.measuring import ProfilingPlan, SubsetRow, fit_polynomial, summarize

_SUBSETS, _SMOKE_SUBSETS = 8, 2
_RELEVANT, _NOISE, _SMOKE_QUERIES = 20, 100, 4
_SHIFT = 0.006
"""Horizontal distance between curves of recall and precision, in panel widths; several often coincide."""
_LOWEST = 0.5
_STORED = TypeAdapter(SubsetRow)


def line(fit: Mapping[str, float], digits: int) -> str:
    """Format the line a + b k."""
    sign = "-" if fit["b"] < 0 else "+"
    return f"{fit['a']:.2f} {sign} {abs(fit['b']):.{digits}f} k"


def subsets_of(options: RunOptions) -> range:
    """Random subsets per cache size; 8 as in the dissertation."""
    return range(_SMOKE_SUBSETS if options.smoke else _SUBSETS)


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


def analysed(rows: Sequence[StoredRow], time: str) -> dict[str, Any]:
    """Points over k, and a + b · k for the time in a column, for recall and for precision.

    Each of ``points`` has the mean and the deviation of each quantity; sizes with an unknown one are left
    out. The time is named after its column.
    """
    measured = [_STORED.validate_python({**row, "lookup_ms": row[time]}) for row in rows]
    points = (point.model_dump() for point in summarize(measured))
    return {
        "points": [
            {name.replace("lookup_ms", time): value for name, value in point.items()}
            for point in points
            if None not in point.values()
        ],
        time: _straight_line(measured, "lookup_ms"),
        **{name: _straight_line(measured, name) for name in ("recall", "precision")},
    }


def _straight_line(rows: Sequence[SubsetRow], name: str) -> dict[str, float]:
    """Fit a + b k to all rows, with b's spread between subsets and the degree chosen by validation."""

    def fitted(some: Sequence[SubsetRow]) -> tuple[float, float]:
        coefficients = fit_polynomial(some, name, (1,))
        return coefficients[0], coefficients[1] if len(coefficients) > 1 else 0.0  # 0: there is only one size

    slopes = []
    for subset in sorted({row.subset for row in rows}):
        _, slope = fitted([row for row in rows if row.subset == subset])
        slopes.append(slope)
    a, b = fitted(rows)
    return {
        "a": a,
        "b": b,
        "b_std": float(np.std(slopes, ddof=1)) if len(slopes) > 1 else 0.0,
        "degree": len(fit_polynomial(rows, name)) - 1,
    }


def point_lines(
    named: Mapping[str, str], points: Sequence[Mapping[str, float]], time: str, what: str
) -> Iterator[dict[str, object]]:
    """Lines of a table: k, and time, recall and precision with their deviation.

    Parameters
    ----------
    named : mapping
        The first columns, the same in all lines.
    points : sequence of mapping
        ``points`` of `analysed`.
    time, what : str
        Name of the time in the points, and the heading of its column.
    """

    def shown(one: Mapping[str, float], name: str, digits: int) -> str:
        return f"{one[name]:.{digits}f} ± {one[f'{name}_std']:.{digits}f}"

    for one in points:
        yield {
            **named,
            "k": one["k"],
            what: shown(one, time, 2),
            "recall": shown(one, "recall", 3),
            "precision": shown(one, "precision", 3),
        }


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
    _draw(latency, series, time)
    latency.set(title="Time to recognise", ylabel=label)
    if logarithmic:
        drawing.plain_logarithmic(latency.yaxis)
    else:
        latency.set_ylim(0, None)
    for axes, quantity in ((recall, "recall"), (precision, "precision")):
        _draw(axes, series, quantity, is_share=True)
        lowest = min(point[quantity] for one in series for point in one.points)
        axes.set(title=quantity.capitalize(), ylim=(min(_LOWEST, lowest - 0.05), 1.02))
    drawing.caption(picture, text)
    drawing.legend_below(picture, latency, 4)
    return picture


def _draw(axes: Axes, series: Sequence[Series], quantity: str, *, is_share: bool = False) -> None:
    """Draw mean and deviation over the subsets of each size; error bars of shares end at 1."""
    widest = max(point["k"] for one in series for point in one.points)
    for place, one in enumerate(series):
        beside = (place - (len(series) - 1) / 2) * _SHIFT * widest * is_share
        k, means, spread = (
            np.array([point[name] for point in one.points]) for name in ("k", quantity, f"{quantity}_std")
        )
        axes.errorbar(
            k + beside,
            means,
            [spread, np.minimum(spread, 1 - means) if is_share else spread],
            color=one.colour,
            marker=one.marker,
            markersize=4,
            linewidth=1.5,
            elinewidth=0.8,
            capsize=2,
            label=one.label,
        )
    axes.set(xlabel="objects in the cache, k", xlim=(-0.025 * widest, None))
