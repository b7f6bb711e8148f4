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

    def observe(self, rank: int | None, k: int, *, held: bool, costs: Costs) -> None:
        """Add a request, and forget the oldest.

        Parameters
        ----------
        rank : int, optional
            Rank of the object that it was for, 0 the most popular, in the estimate *before* the request;
            None: an object that no cache would have had, or none at all.
        k : int
            Size of the cache that was asked.
        held : bool
            Whether it held the object.
        costs : Costs
            As of then; a larger size counts as the largest described.
        """
        lookup_ms, recall, miss_ms = costs.lookup_ms, costs.recall, costs.miss_ms
        sizes = np.minimum(self._sizes, len(lookup_ms) - 1)
        missed = np.ones(len(sizes))
        if rank is not None:
            missed -= np.where(rank < sizes, recall[sizes], 0.0)
        place = self._seen % len(self._chosen_ms)
        self._costs_ms[place] = lookup_ms[sizes] + missed * miss_ms
        k = min(k, len(lookup_ms) - 1)
        found = float(recall[k]) if held else 0.0
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


class RegretMeter:
    """Regret of the running edge, for all threads.

    Ranks and costs are those of the last decision, a few requests old: ranking the whole catalogue for each
    request would cost more than the lookup.

    Parameters
    ----------
    k_max : int
        Largest size that is compared.
    window : int
        Requests that are remembered.
    """

    def __init__(self, k_max: int, window: int) -> None:
        self._regret = Regret(k_max, window)
        self._lock = threading.Lock()
        self._estimate: tuple[Ranking, NDArray[np.intp], Costs] | None = None

    def decided(self, ranking: Ranking, costs: Costs) -> None:
        """A decision was taken on this estimate."""
        ranks = np.empty(len(ranking), dtype=np.intp)
        ranks[ranking.order] = np.arange(len(ranking))
        with self._lock:
            self._estimate = (ranking, ranks, costs)

    def observe(self, object_id: str | None, k: int, *, held: bool) -> None:
        """A request was answered: for which object, with how large a cache, and whether it held that."""
        with self._lock:
            if self._estimate is None:
                return
            ranking, ranks, costs = self._estimate
            position = None if object_id is None else ranking.positions.get(object_id)
            rank = None if position is None else int(ranks[position])
            if rank is not None and rank >= ranking.seen:
                rank = None  # nobody had asked for it: no cache would have had it
            self._regret.observe(rank, k, held=held, costs=costs)

    def report(self) -> RegretReport:
        """Look back."""
        with self._lock:
            return self._regret.report()


def _sizes(k_max: int, resolution: int) -> NDArray[np.intp]:
    if k_max < resolution:
        return np.arange(k_max + 1, dtype=np.intp)
    spaced = np.geomspace(1, k_max, resolution - 1).round().astype(np.intp)
    return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), spaced]))
