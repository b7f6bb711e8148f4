"""Regret: what the last requests cost, against the one cache size that would have been best for them.

The optimizer decides from estimates. Afterwards it is known which objects were asked for, and at which rank
of popularity each stood: a cache of the k most popular would have had the object iff its rank is below k.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.edge.profiler import Costs
from nearsight.edge.request_distribution import Ranking


@dataclass(frozen=True, slots=True)
class RegretReport:
    """The last requests in hindsight."""

    requests: int
    """How many."""
    mean_ms: float
    """Cost per request of the sizes that were chosen."""
    best_k: int
    """The fixed size that would have cost least; of equally good ones the smallest."""
    best_ms: float
    """What it would have cost per request."""

    @property
    def regret_ms(self) -> float:
        """What the chosen sizes cost more; negative where changing the size beat every fixed one."""
        return self.mean_ms - self.best_ms

    @property
    def why(self) -> str:
        """The report in one line, for a person."""
        if not self.requests:
            return "no request yet"
        share = self.regret_ms / self.best_ms if self.best_ms > 0 else 0.0
        return (
            f"{self.mean_ms:.2f} ms per request over the last {self.requests}; always k={self.best_k} would "
            f"have cost {self.best_ms:.2f} ms, {share:+.1%}"
        )


class Regret:
    """Costs of the last requests under every size, for all threads.

    Ranks and costs are those of the last decision, a few requests old: ranking the whole catalogue for each
    request would cost more than the lookup.

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
        self.sizes = _sizes(k_max, resolution)
        """The sizes that are compared, rising: (G,) intp."""
        self._costs_ms = np.zeros((window, len(self.sizes)))
        self._chosen_ms = np.zeros(window)
        self._seen = 0
        self._lock = threading.Lock()
        self._estimate: tuple[Ranking, NDArray[np.intp], Costs] | None = None

    def decided(self, ranking: Ranking, costs: Costs) -> None:
        """A decision was taken on this estimate."""
        ranks = np.empty(len(ranking), dtype=np.intp)
        ranks[ranking.order] = np.arange(len(ranking))
        with self._lock:
            self._estimate = (ranking, ranks, costs)

    def observe(self, object_id: str | None, k: int, *, held: bool) -> None:
        """Add a request, and forget the oldest.

        Parameters
        ----------
        object_id : str, optional
            The object that it was for, if it was for any.
        k : int
            Size of the cache that was asked; more than the costs describe counts as the largest described.
        held : bool
            Whether it held the object.
        """
        with self._lock:
            if self._estimate is None:
                return
            ranking, ranks, costs = self._estimate
            sizes = np.minimum(self.sizes, len(costs.lookup_ms) - 1)
            missed = np.ones(len(sizes))
            position = None if object_id is None else ranking.positions.get(object_id)
            # No cache would have had what nobody had asked for.
            if position is not None and ranks[position] < ranking.seen:
                missed -= np.where(ranks[position] < sizes, costs.recall[sizes], 0.0)
            place = self._seen % len(self._chosen_ms)
            self._costs_ms[place] = costs.lookup_ms[sizes] + missed * costs.miss_ms
            k = min(k, len(costs.lookup_ms) - 1)
            found = float(costs.recall[k]) if held else 0.0
            self._chosen_ms[place] = float(costs.lookup_ms[k]) + (1.0 - found) * costs.miss_ms
            self._seen += 1

    def costs_ms(self) -> FloatArray:
        """Mean cost of each size over the window: (G,) float64, beside `sizes`; zeros before the first."""
        count = min(self._seen, len(self._chosen_ms))
        return np.asarray(self._costs_ms[:count].sum(axis=0) / max(1, count))

    def report(self) -> RegretReport:
        """Look back."""
        with self._lock:
            count = min(self._seen, len(self._chosen_ms))
            costs_ms = self.costs_ms()
            best = int(np.argmin(costs_ms))
            mean_ms = float(self._chosen_ms[:count].sum() / max(1, count))
            return RegretReport(count, mean_ms, int(self.sizes[best]), float(costs_ms[best]))


def _sizes(k_max: int, resolution: int) -> NDArray[np.intp]:
    if k_max < resolution:
        return np.arange(k_max + 1, dtype=np.intp)
    spaced = np.geomspace(1, k_max, resolution - 1).round().astype(np.intp)
    return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), spaced]))
