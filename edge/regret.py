"""Regret: what the last requests cost, against the one cache size that would have been best for them.

The optimizer decides from estimates. Afterwards it is known which objects were asked for, and at which rank
of popularity each stood: a cache of the k most popular would have had the object iff its rank is below k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray


@dataclass(frozen=True, slots=True)
class RegretReport:
    """The last requests in hindsight.

    Attributes
    ----------
    requests : int
        How many.
    mean_ms : float
        Cost per request of the sizes that were chosen.
    best_k : int
        The fixed size that would have cost least; of equally good ones the smallest.
    best_ms : float
        What it would have cost per request.
    regret_ms : float
        ``mean_ms - best_ms``. Negative where changing the size beat every fixed one.
    """

    requests: int
    mean_ms: float
    best_k: int
    best_ms: float
    regret_ms: float

    @property
    def share(self) -> float:
        """Regret as part of what the best size costs; 0 where that costs nothing."""
        return self.regret_ms / self.best_ms if self.best_ms > 0 else 0.0

    @property
    def why(self) -> str:
        """The report in one line, for a person."""
        if not self.requests:
            return "no request yet"
        return (
            f"{self.mean_ms:.2f} ms per request over the last {self.requests}; always k={self.best_k} would "
            f"have cost {self.best_ms:.2f} ms, {self.share:+.1%}"
        )


@dataclass(frozen=True, slots=True)
class CacheOutcome:
    """One request, as regret sees it.

    Attributes
    ----------
    rank : int, optional
        Rank of the object that it was for, 0 the most popular, in the estimate *before* the request; None:
        an object that no cache would have had, or none at all.
    k : int
        Size of the cache that was asked.
    held : bool
        Whether it held the object.
    """

    rank: int | None
    k: int
    held: bool


class Regret:
    """Costs of the last requests under every size.

    Parameters
    ----------
    k_max : int
        Largest size. Up to ``resolution`` sizes are compared; beyond, they are spaced as a geometric row.
    window : int
        N, requests that are remembered: 8 · N · resolution bytes at most.
    resolution : int
        Sizes that are compared.

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """

    def __init__(self, k_max: int, window: int = 1000, resolution: int = 128) -> None:
        if k_max < 0 or window < 1 or resolution < 2:
            raise InvalidArgument(
                f"regret needs k_max >= 0, a window >= 1 and >= 2 sizes, got {k_max}, {window}, {resolution}"
            )
        self._sizes = _sizes(k_max, resolution)
        self._costs_ms = np.zeros((window, len(self._sizes)))
        self._chosen_ms = np.zeros(window)
        self._seen = 0

    @property
    def sizes(self) -> NDArray[np.intp]:
        """The sizes that are compared, rising: (G,) intp."""
        return self._sizes

    def observe(
        self, outcome: CacheOutcome, lookup_ms: FloatArray, recall: FloatArray, miss_ms: float
    ) -> None:
        """Add a request, and forget the oldest.

        Parameters
        ----------
        outcome : CacheOutcome
            What happened.
        lookup_ms, recall : ndarray, (K + 1,) float64
            f(k) and recall(k) as of then; a larger size counts as the largest described.
        miss_ms : float
            L_miss as of then.
        """
        sizes = np.minimum(self._sizes, len(lookup_ms) - 1)
        missed = np.ones(len(sizes))
        if outcome.rank is not None:
            missed -= np.where(outcome.rank < sizes, recall[sizes], 0.0)
        place = self._seen % len(self._chosen_ms)
        self._costs_ms[place] = lookup_ms[sizes] + missed * miss_ms
        k = min(outcome.k, len(lookup_ms) - 1)
        found = float(recall[k]) if outcome.held else 0.0
        self._chosen_ms[place] = float(lookup_ms[k]) + (1.0 - found) * miss_ms
        self._seen += 1

    def costs_ms(self) -> FloatArray:
        """Mean cost of each size over the window: (G,) float64, beside `sizes`; zeros before the first."""
        count = min(self._seen, len(self._chosen_ms))
        return np.asarray(self._costs_ms[:count].sum(axis=0) / max(1, count))

    def report(self) -> RegretReport:
        """Look back."""
        count = min(self._seen, len(self._chosen_ms))
        costs_ms = self.costs_ms()
        best = int(np.argmin(costs_ms))
        mean_ms = float(self._chosen_ms[:count].sum() / max(1, count))
        best_ms = float(costs_ms[best])
        return RegretReport(count, mean_ms, int(self._sizes[best]), best_ms, mean_ms - best_ms)


def _sizes(k_max: int, resolution: int) -> NDArray[np.intp]:
    if k_max < resolution:
        return np.arange(k_max + 1, dtype=np.intp)
    spaced = np.geomspace(1, k_max, resolution - 1).round().astype(np.intp)
    return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), spaced]))
