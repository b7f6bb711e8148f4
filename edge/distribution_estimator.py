"""The Distribution Estimator of figure 3.5: counts requests, estimates how likely each object is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nearsight.common.clock import Clock
from nearsight.edge.eviction import Recency
from nearsight.edge.request_distribution import Ranking, RequestDistribution


@dataclass(frozen=True, slots=True)
class StoredCount:
    """The count of an object as it was stored, ``age_s`` seconds of operation ago."""

    object_id: str
    count: float
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PopularityChanges:
    """What a store has to write: first forget the removed objects, then replace the counts."""

    removed_objects: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed_objects or self.counts)


class DistributionEstimator:
    """The request distribution of one catalogue, shared by the threads of the daemon.

    Parameters
    ----------
    distribution : RequestDistribution
        The estimate itself; used by nobody else from now on.
    clock : Clock
        For the decay of the counts.
    journal : bool
        Whether to note changes for `changes`; without a reader of them the notes would only grow.
    """

    def __init__(self, distribution: RequestDistribution, clock: Clock, *, journal: bool = False) -> None:
        self._distribution = distribution
        self._clock = clock
        self._asked: Counter[str] = Counter()
        self._recency = Recency()
        self._journal = journal
        self._touched: set[str] = set()
        self._removed: set[str] = set()
        self._lock = threading.Lock()

    def count(self, object_id: str) -> bool:
        """Count a request for an object; False if the catalogue has no such object."""
        with self._lock:
            if not self._distribution.count(object_id, self._clock.monotonic()):
                return False
            self._asked[object_id] += 1
            self._recency.observe(object_id)
            if self._journal:
                self._touched.add(object_id)
            return True

    def recent(self) -> tuple[str, ...]:
        """Objects that were asked for, the latest first, each once."""
        with self._lock:
            return self._recency.latest_first()

    def ranking(self) -> Ranking:
        """The estimate as of now."""
        with self._lock:
            return self._distribution.ranking(self._clock.monotonic())

    def counts(self) -> dict[str, float]:
        """The counts as of now, of objects that were asked for: what a later start can take as priors."""
        with self._lock:
            return self._distribution.counts(self._clock.monotonic())

    def changes(self) -> PopularityChanges:
        """What changed since the last call; if it cannot be written, hand it to `redo`."""
        with self._lock:
            touched, removed = self._touched, self._removed
            self._touched, self._removed = set(), set()
            counts = self._distribution.counts(self._clock.monotonic()) if touched else {}
            return PopularityChanges(
                tuple(sorted(removed)), {name: counts[name] for name in sorted(touched) if name in counts}
            )

    def redo(self, changes: PopularityChanges) -> None:
        """These changes could not be written."""
        with self._lock:
            self._removed.update(changes.removed_objects)
            self._touched.update(name for name in changes.counts if name in self._distribution)

    def restore(self, counts: Iterable[StoredCount]) -> int:
        """Begin with what an earlier run counted ("learning from previous operations", section 3.5.2).

        The counts join those of this run, decayed by their age: in equation 3.2 it makes no difference
        whether a request adds to M_i or to alpha_i, and so they go on fading. Returns how many objects of
        the catalogue they were for.
        """
        with self._lock:
            now_s = self._clock.monotonic()
            taken = 0
            for stored in counts:
                weight = self._distribution.decayed(stored.count, stored.age_s)
                taken += self._distribution.count(stored.object_id, now_s, weight)
            return taken

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Take over a changed catalogue."""
        with self._lock:
            before = self._distribution.object_ids
            self._distribution.set_objects(object_ids)
            if self._journal:
                gone = [name for name in before if name not in self._distribution]
                self._removed.update(gone)
                self._touched.difference_update(gone)
            self._recency.remove(
                [name for name in self._recency.latest_first() if name not in self._distribution]
            )
            for object_id in [name for name in self._asked if name not in self._distribution]:
                del self._asked[object_id]

    def asked(self) -> Mapping[str, int]:
        """Requests per object since it was last part of a new snapshot."""
        with self._lock:
            return dict(self._asked)

    def entered(self, object_ids: Iterable[str]) -> None:
        """These objects are in the new snapshot: they are newly popular no longer."""
        with self._lock:
            for object_id in object_ids:
                self._asked.pop(object_id, None)

    def readmit(self, object_ids: Iterable[str]) -> None:
        """These objects were thrown out for a newer version: let that enter as if it were newly popular."""
        with self._lock:
            for object_id in object_ids:
                if object_id in self._distribution:
                    self._asked[object_id] = max(self._asked[object_id], 2)
