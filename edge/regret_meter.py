"""What each cache size would have cost for the last requests: `Regret`, fed by the running edge.

Ranks and costs are those of the last decision, a few requests old: ranking the whole catalogue anew for
each request would cost more than the lookup.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from nearsight.edge.profiler import Costs
from nearsight.edge.regret import CacheOutcome, Regret, RegretReport
from nearsight.edge.request_distribution import Ranking


class RegretMeter:
    """Regret of one catalogue's cache sizes, for all threads.

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
            outcome = CacheOutcome(rank, k, held)
            self._regret.observe(outcome, costs.lookup_ms, costs.recall, costs.miss_ms)

    def report(self) -> RegretReport:
        """Look back."""
        with self._lock:
            return self._regret.report()
