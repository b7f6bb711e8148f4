"""Losses of the full system against the best simpler one, computed from the rows of the map.

A loss counts if it exceeds the variation between traces and is large enough to be noticed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.experiments.framework.experiment import StoredRow
from nearsight.experiments.studies.map.places import Place
from nearsight.experiments.twin.session import BOUNDED, LOAD_BALANCED, ONLY_CLOUD, PREFETCHING

SIMPLER = (ONLY_CLOUD, LOAD_BALANCED, BOUNDED, PREFETCHING)
"""Configurations that are simpler than the full system (6.2.3)."""
_WITH_EDGE = tuple(name for name in SIMPLER if name != ONLY_CLOUD)
_SIGNIFICANT = 2.0
"""Number of standard errors beyond which a difference counts."""
_THREE_DIGITS = 100.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric for which smaller is better."""

    columns: tuple[str, ...]
    """Columns of the rows; the metric is their sum."""
    title: str
    unit: str
    """Title and unit in tables and pictures."""
    noticeable: float
    """Smallest difference that counts as noticeable, in the unit."""
    factor: float = 1.0
    """Factor from the rows' unit to this unit."""
    rivals: tuple[str, ...] = SIMPLER
    """Simpler configurations for which the metric exists."""
    complement: bool = False
    """Whether the metric is 1 minus the sum of the columns."""

    def of(self, row: StoredRow) -> float:
        """Value of the metric in a row."""
        value = sum(float(row[name]) for name in self.columns)
        return self.factor * (1.0 - value if self.complement else value)


def digits(value: float) -> str:
    """Format a number with three digits, or with all digits before the decimal point."""
    return f"{value:.0f}" if abs(value) >= _THREE_DIGITS else f"{value:.3g}"


METRICS: Mapping[str, Metric] = {
    "p50": Metric(("p50_ms",), "median latency", "ms", 1.0),
    "mean": Metric(("mean_ms",), "mean latency", "ms", 1.0),
    "p95": Metric(("p95_ms",), "95th percentile of latency", "ms", 2.0),
    "bytes": Metric(("up_kbps", "down_kbps"), "traffic between building and cloud", "kbit/s", 5.0),
    "edge": Metric(("edge_cpu",), "CPU of the edge", "% of its cores", 0.1, 100.0, _WITH_EDGE),
    "cloud": Metric(("cloud_cpu",), "CPU of the cloud", "% of its cores", 0.1, 100.0),
    "missed": Metric(("recall",), "photos not recognised", "% of photos", 0.5, 100.0, complement=True),
}


@dataclass(frozen=True, slots=True)
class Loss:
    """The full system against the best simpler configuration at one place, in one metric."""

    place: Place
    full: float
    best: float
    """Values in the unit of the metric; means over the runs."""
    rival: str
    """Configuration with the best value."""
    ratio: float
    """Full over best: geometric mean over the runs."""
    chance: float
    """Standard error of the ratio's logarithm."""
    lost: bool
    won: bool
    """Whether the difference is beyond chance and noticeable."""

    @property
    def difference(self) -> float:
        """The loss in the unit of the metric; negative: a gain."""
        return self.full - self.best


def losses_of(
    rows: Sequence[StoredRow], full: str, name: str, rivals: Sequence[str] | None = None
) -> list[Loss]:
    """Losses at all places, for one full system and metric.

    Parameters
    ----------
    rows : sequence of StoredRow
        Rows of the map.
    full : str
        Configuration of the full system.
    name : str
        Key in `METRICS`.
    rivals : sequence of str, optional
        Configurations for the comparison; at each place the best of them is used. Default: the rivals of the
        metric.
    """
    metric = METRICS[name]
    rivals = metric.rivals if rivals is None else rivals
    values: dict[Place, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        values[Place.of(row)][row["tiers"]][row["run"]] = metric.of(row)
    compared = {place: _compared(found, full, rivals, metric) for place, found in values.items()}
    spread = _spread(compared)
    return [_loss(place, one, spread[place.visitors], metric) for place, one in compared.items()]


@dataclass(frozen=True, slots=True)
class _Compared:
    full: float
    best: float
    rival: str
    logarithms: list[float]


def _compared(
    found: Mapping[str, Mapping[str, float]], full: str, rivals: Sequence[str], metric: Metric
) -> _Compared:
    """Compare with the rival that is best on average over all runs; a choice per run would favour chance."""
    means = {name: float(np.mean(list(found[name].values()))) for name in rivals}
    rival = min(means, key=lambda name: means[name])
    least = metric.noticeable / 10  # avoids a ratio of zeros
    ratios = [
        math.log(max(least, value) / max(least, found[rival][run])) for run, value in found[full].items()
    ]
    return _Compared(float(np.mean(list(found[full].values()))), means[rival], rival, ratios)


def _spread(compared: Mapping[Place, _Compared]) -> dict[int, float]:
    """Standard deviation between runs by number of visitors; fewer visitors send fewer photos.

    Pooled over the repeated places. For a number of visitors that was not repeated, pooled over all.
    """
    variances: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for place, one in compared.items():
        if len(one.logarithms) > 1:
            freedom = len(one.logarithms) - 1
            variances[place.visitors].append((freedom, float(np.var(one.logarithms, ddof=1))))
    everywhere = [pair for pairs in variances.values() for pair in pairs]
    return {
        visitors: _pooled(variances.get(visitors) or everywhere)
        for visitors in {place.visitors for place in compared}
    }


def _pooled(variances: Sequence[tuple[int, float]]) -> float:
    freedom = sum(count for count, _ in variances)
    return math.sqrt(sum(count * value for count, value in variances) / freedom) if freedom else 0.0


def _loss(place: Place, one: _Compared, spread: float, metric: Metric) -> Loss:
    logarithm, chance = float(np.mean(one.logarithms)), spread / math.sqrt(len(one.logarithms))
    noticeable = abs(one.full - one.best) >= metric.noticeable
    lost = noticeable and logarithm > _SIGNIFICANT * chance
    won = noticeable and logarithm < -_SIGNIFICANT * chance
    return Loss(place, one.full, one.best, one.rival, math.exp(logarithm), chance, lost, won)
