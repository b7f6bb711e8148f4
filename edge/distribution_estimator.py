"""The Distribution Estimator of figure 3.5: counts requests, estimates how likely each object is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from nearsight.common.caching.eviction import Recency
from nearsight.common.caching.request_distribution import Ranking, RequestDistribution
from nearsight.common.clock import Clock


class DistributionEstimator:
    """The request distribution of one catalogue, shared by the threads of the daemon.

    Parameters
    ----------
    distribution : RequestDistribution
        The estimate itself; used by nobody else from now on.
    clock : Clock
        For the decay of the counts.
    """

    def __init__(self, distribution: RequestDistribution, clock: Clock) -> None:
        self._distribution = distribution
        self._clock = clock
        self._asked: Counter[str] = Counter()
        self._recency = Recency()
        self._lock = threading.Lock()

    def count(self, object_id: str) -> bool:
        """Count a request for an object; False if the catalogue has no such object."""
        with self._lock:
            if not self._distribution.count(object_id, self._clock.monotonic()):
                return False
            self._asked[object_id] += 1
            self._recency.observe(object_id)
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

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Take over a changed catalogue."""
        with self._lock:
            self._distribution.set_objects(object_ids)
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
