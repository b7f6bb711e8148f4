"""Prefetching from the cloud while nobody asks: what the present devices are likely to look at next.

Popularity alone fills the cache with what many asked for. The first visitor of a section asks for what
nobody did lately; the Markov model knows it from the visitors of other days. A few such objects join the
snapshot as prefetched objects. They pay by the same rule as all others, recall · p · L_miss >
f(k + 1) - f(k), with p from where the devices are now. Each is counted as useful, if it was asked for, or as
wasted.

Young transitions promise too much where requests do not follow paths. So p is corrected by the ratio of the
requests that prefetched objects got to those that p promised them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nearsight.edge.profiler import Costs

_FAVOUR_OF_HELD = 1.5
_MEMORY = 20.0  # promised requests that the correction looks back over
_FORGIVING = 0.995  # of the memory that a choice leaves: it must end while nothing is prefetched


@dataclass(frozen=True, slots=True)
class PrefetchCount:
    """Prefetched objects so far: how many entered, were asked for, and left without having been asked for."""

    entered: int
    useful: int
    wasted: int


class IdlePrefetch:
    """Chooses what to prefetch, and counts what came of it.

    Parameters
    ----------
    most : int
        Prefetched objects at the same time; 0 for none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._prefetched: frozenset[str] = frozenset()
        self._chances: dict[str, float] = {}
        self._promised = self._kept = 0.0
        self._asked: set[str] = set()
        self._entered = self._useful = self._wasted = 0

    @property
    def prefetched(self) -> frozenset[str]:
        """Objects of the snapshot that were prefetched."""
        return self._prefetched

    @property
    def trust(self) -> float:
        """Requests that prefetched objects got, over those that were promised; at most 1."""
        with self._lock:
            return min(1.0, (self._kept + 1.0) / (self._promised + 1.0))

    @property
    def count(self) -> PrefetchCount:
        """The counts."""
        with self._lock:
            return PrefetchCount(self._entered, self._useful, self._wasted)

    def choose(
        self, expected: Mapping[str, float], residents: Collection[str], costs: Costs, moving: float
    ) -> tuple[str, ...]:
        """The objects that should be prefetched, the most likely first.

        Parameters
        ----------
        expected : mapping of str to float
            Probability that the next step of a present device leads to an object.
        residents : collection of str
            Objects that are in the cache anyway.
        costs : Costs
            f, recall and L_miss.
        moving : float
            Share of the requests that are for another object than the device's last one.
        """
        # What is here has cost its fetch already; without a favour two of equal chances would take turns.
        trust = self.trust
        weighed = {
            name: p * (_FAVOUR_OF_HELD if name in self._prefetched else 1.0)
            for name, p in expected.items()
            if name not in residents
        }
        chosen: list[str] = []
        for name in sorted(weighed, key=lambda name: (-weighed[name], name)):
            k = len(residents) + len(chosen)
            if len(chosen) >= self._most or k + 1 >= len(costs.lookup_ms):
                break
            gain_ms = float(costs.recall[k + 1]) * trust * moving * weighed[name] * costs.miss_ms
            if gain_ms <= float(costs.lookup_ms[k + 1] - costs.lookup_ms[k]):
                break
            chosen.append(name)
        with self._lock:
            self._chances = {name: moving * expected[name] for name in chosen}
            self._promised *= _FORGIVING
            self._kept *= _FORGIVING
        return tuple(chosen)

    def built(self, prefetched: Collection[str], residents: Collection[str]) -> tuple[int, int]:
        """A snapshot with these prefetched objects answers now; how many entered, and left as wasted.

        Former ones left, or stayed as residents.
        """
        with self._lock:
            new, before = frozenset(prefetched), self._prefetched
            entered = len(new - before)
            wasted = len([name for name in before - new if name not in residents and name not in self._asked])
            self._entered += entered
            self._wasted += wasted
            self._prefetched = new
            self._asked &= new
            return entered, wasted

    def requested(self, object_id: str | None) -> bool:
        """A request came, for an object if one is known; whether it is the first for a prefetched one."""
        if not self._prefetched:
            return False
        with self._lock:
            self._promised += sum(self._chances.get(name, 0.0) for name in self._prefetched)
            if self._promised > _MEMORY:
                self._kept *= _MEMORY / self._promised
                self._promised = _MEMORY
            if object_id not in self._prefetched:
                return False
            self._kept += 1.0
            if object_id in self._asked:
                return False
            self._asked.add(object_id)
            self._useful += 1
            return True
