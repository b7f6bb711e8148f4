"""The Distribution Estimator of figure 3.5: probability of the next requested object (equations 3.2, 3.3).

Every photo of an exhibit that reaches the edge is one request, even the tenth of the same visitor. Photos
that a device recognises itself count when it reports them. Counts lose half of their weight per half-life, so
that the cache follows changes of interest. An infinite half-life is the dissertation's estimate.
`RequestDistribution` is the estimate; `DistributionEstimator` makes it thread-safe for a daemon.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument

_RESCALE_AT_HALF_LIVES = 64.0
_RECENT_OBJECTS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Objects by decreasing probability of the next request."""

    catalogue: tuple[str, ...]
    """The N objects in the catalogue's order."""
    positions: Mapping[str, int]
    """Position of each object in ``catalogue``."""
    order: NDArray[np.intp]
    """(N,) intp: positions by decreasing probability; equally probable objects in the catalogue's order."""
    probabilities: NDArray[np.float64]
    """(N,) float64: p̂_i of equation 3.2 in that order, decreasing; the sum is 1."""
    cumulative: NDArray[np.float64]
    """(N + 1,) float64: P_cached(k) of equation 3.3 for k = 0 … N."""
    seen: int
    """Number of objects that are above the prior because of requests; they are the first of the ranking."""

    def __len__(self) -> int:
        return len(self.catalogue)

    def top(self, count: int) -> tuple[str, ...]:
        """The ``count`` most probable objects, most probable first."""
        return tuple(map(self.catalogue.__getitem__, self.order[:count].tolist()))

    def probability_of(self, object_ids: Iterable[str]) -> float:
        """Probability that a request is for one of these objects; unknown objects add 0."""
        inside = [self.positions[name] for name in object_ids if name in self.positions]
        by_position = np.empty(len(self.catalogue))
        by_position[self.order] = self.probabilities
        return float(by_position[inside].sum())


class RequestDistribution:
    """p̂_i = (M_i + alpha_i) / (ΣM + sum of alpha) over the objects of one catalogue.

    Parameters
    ----------
    object_ids : iterable of str
        Objects of the catalogue. Their number N is known from the start.
    prior : float
        alpha of an object without requests; 1 as in the dissertation.
    prior_mass : float
        Limit of the sum of all alphas: in large catalogues each is ``prior_mass`` / N. With one request per
        object, the priors of 500 objects outweigh the first hundreds of real requests. ``inf`` as in the
        dissertation.
    half_life_s : float
        Time in which a count loses half of its weight [s]; ``inf`` for no decay.

    Raises
    ------
    InvalidArgument
        If ``prior``, ``prior_mass`` or ``half_life_s`` is not positive, or ``prior`` is infinite.

    Notes
    -----
    Source: Cachier dissertation, section 3.3.2.2. Not thread-safe.
    """

    def __init__(
        self,
        object_ids: Iterable[str] = (),
        *,
        prior: float = 1.0,
        prior_mass: float = math.inf,
        half_life_s: float = math.inf,
    ) -> None:
        if not 0 < prior < math.inf:
            raise InvalidArgument(f"the prior must be positive and finite, got {prior}")
        if not prior_mass > 0:
            raise InvalidArgument(f"the priors must sum to more than 0, got {prior_mass}")
        if not half_life_s > 0:
            raise InvalidArgument(f"the half-life must be positive, got {half_life_s} s")
        self._largest_prior = prior
        self._prior_mass = prior_mass
        self._prior = prior  # for the present number of objects
        self._half_life_s = half_life_s
        # The unit of counts is a request at `_origin_s`. Thus decay changes no count; a new request has a
        # higher weight than old ones instead.
        self._origin_s = 0.0
        self._index: dict[str, int] = {}
        self.object_ids: tuple[str, ...] = ()
        """Objects of the catalogue, in its order."""
        self._counts = np.zeros(0)
        self.set_objects(object_ids)

    def __len__(self) -> int:
        return len(self.object_ids)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._index

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Replace the catalogue: counts of removed objects are deleted, new objects have the prior."""
        ids = tuple(dict.fromkeys(object_ids))
        self._prior = min(self._largest_prior, self._prior_mass / max(1, len(ids)))
        known = self._index
        self._counts = np.array([self._counts[known[name]] if name in known else 0.0 for name in ids])
        self.object_ids = ids
        self._index = {object_id: position for position, object_id in enumerate(ids)}

    def count(self, object_id: str, now_s: float, weight: float = 1.0) -> bool:
        """Count a request; False, without counting, if the catalogue does not have the object."""
        position = self._index.get(object_id)
        if position is None:
            return False
        # Compute the present weight first, because this may rescale the counts.
        weight_now = self._weight_of(now_s)
        self._counts[position] += weight * weight_now
        return True

    def decayed(self, count: float, age_s: float) -> float:
        """The count after decay over this time."""
        return count * math.exp2(-age_s / self._half_life_s)

    def counts(self, now_s: float) -> dict[str, float]:
        """Present M_i with decay, of objects with requests; for storing."""
        weight_now = self._weight_of(now_s)
        scaled = self._counts / weight_now
        return {self.object_ids[position]: float(scaled[position]) for position in np.flatnonzero(scaled)}

    def ranking(self, now_s: float) -> Ranking:
        """Estimate the present distribution."""
        weight_now = self._weight_of(now_s)
        weights = self._counts / weight_now + self._prior
        # The sort is stable, so that ties keep the catalogue's order.
        order = np.argsort(-weights, kind="stable")
        ordered = weights[order]
        probabilities = ordered / max(ordered.sum(), self._prior)
        cumulative = np.zeros(len(order) + 1)
        np.cumsum(probabilities, out=cumulative[1:])
        np.minimum(cumulative, 1.0, out=cumulative)
        seen = int(np.count_nonzero(weights > self._prior))
        return Ranking(self.object_ids, self._index, order, probabilities, cumulative, seen)

    def _weight_of(self, now_s: float) -> float:
        """Weight of a present request, relative to a request at the origin."""
        if math.isinf(self._half_life_s):
            return 1.0
        half_lives = (now_s - self._origin_s) / self._half_life_s
        if half_lives > _RESCALE_AT_HALF_LIVES:
            self._counts *= math.exp2(-half_lives)
            self._origin_s = now_s
            return 1.0
        return math.exp2(half_lives)


@dataclass(frozen=True, slots=True)
class StoredCount:
    """Stored count of an object; ``age_s`` is the time of operation since then [s]."""

    object_id: str
    count: float
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PopularityChanges:
    """Changes for a store: first delete the removed objects, then replace the counts."""

    removed_objects: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed_objects or self.counts)


class DistributionEstimator:
    """The request distribution of one catalogue; thread-safe.

    Parameters
    ----------
    distribution : RequestDistribution
        The estimate; only this object uses it from now on.
    clock : Clock
        Time for the decay of the counts.
    journal : bool
        Whether to record changes for `changes`; without calls of `changes` the record would only grow.
    """

    def __init__(self, distribution: RequestDistribution, clock: Clock, *, journal: bool = False) -> None:
        self._distribution = distribution
        self._clock = clock
        self._asked: Counter[str] = Counter()
        self._recent: OrderedDict[str, None] = OrderedDict()  # latest last
        self._journal = journal
        self._touched: set[str] = set()
        self._removed: set[str] = set()
        self._lock = threading.Lock()

    def count(self, object_id: str) -> bool:
        """Count a request for an object; False if the catalogue does not have the object."""
        with self._lock:
            if not self._distribution.count(object_id, self._clock.monotonic()):
                return False
            self._asked[object_id] += 1
            self._recent[object_id] = None
            self._recent.move_to_end(object_id)
            if len(self._recent) > _RECENT_OBJECTS:
                self._recent.popitem(last=False)
            if self._journal:
                self._touched.add(object_id)
            return True

    def recent(self) -> tuple[str, ...]:
        """Requested objects, latest first, without duplicates; at most 10,000."""
        with self._lock:
            return tuple(reversed(self._recent))

    def ranking(self) -> Ranking:
        """The present estimate."""
        with self._lock:
            return self._distribution.ranking(self._clock.monotonic())

    def counts(self) -> dict[str, float]:
        """Present counts of objects with requests."""
        with self._lock:
            return self._distribution.counts(self._clock.monotonic())

    def changes(self) -> PopularityChanges:
        """Changes since the last call; if they cannot be written, pass them to `redo`."""
        with self._lock:
            touched, removed = self._touched, self._removed
            self._touched, self._removed = set(), set()
            counts = self._distribution.counts(self._clock.monotonic()) if touched else {}
            return PopularityChanges(
                tuple(sorted(removed)), {name: counts[name] for name in sorted(touched) if name in counts}
            )

    def redo(self, changes: PopularityChanges) -> None:
        """Receive changes that could not be written; `changes` returns them again."""
        with self._lock:
            self._removed.update(changes.removed_objects)
            self._touched.update(name for name in changes.counts if name in self._distribution)

    def restore(self, counts: Iterable[StoredCount]) -> int:
        """Load the counts of an earlier run ("learning from previous operations", section 3.5.2).

        The counts are added to those of this run, with decay by their age. In equation 3.2 it makes no
        difference whether a request adds to M_i or to alpha_i; in M_i the counts continue to decay. Returns
        the number of objects of the catalogue with a loaded count.
        """
        with self._lock:
            now_s = self._clock.monotonic()
            taken = 0
            for stored in counts:
                weight = self._distribution.decayed(stored.count, stored.age_s)
                taken += self._distribution.count(stored.object_id, now_s, weight)
            return taken

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Replace the objects of the catalogue."""
        with self._lock:
            before = self._distribution.object_ids
            self._distribution.set_objects(object_ids)
            gone = [name for name in before if name not in self._distribution]
            for name in gone:
                self._recent.pop(name, None)
                self._asked.pop(name, None)
            if self._journal:
                self._removed.update(gone)
                self._touched.difference_update(gone)

    def asked(self) -> Mapping[str, int]:
        """Requests per object since it was last part of a new snapshot."""
        with self._lock:
            return dict(self._asked)

    def entered(self, object_ids: Iterable[str]) -> None:
        """Record the objects of a new snapshot, which are no longer newly popular."""
        with self._lock:
            for object_id in object_ids:
                self._asked.pop(object_id, None)

    def readmit(self, object_ids: Iterable[str]) -> None:
        """Treat objects as newly popular, because the cache removed them for a newer version."""
        with self._lock:
            for object_id in object_ids:
                if object_id in self._distribution:
                    self._asked[object_id] = max(self._asked[object_id], 2)
