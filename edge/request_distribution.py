"""The Distribution Estimator of figure 3.5: how likely each object is asked for next (equations 3.2 and 3.3).

Every photo of an exhibit is one request, also the tenth of the same visitor. Counts lose half of their
weight per half-life, so that the cache follows a crowd that moves on; an infinite half-life is the
dissertation's estimate. `RequestDistribution` is the estimate, `DistributionEstimator` shares it among the
threads of a daemon.
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
    """Objects by falling probability of being asked for next."""

    catalogue: tuple[str, ...]
    """The N objects in the catalogue's order."""
    positions: Mapping[str, int]
    """Where each object is in ``catalogue``."""
    order: NDArray[np.intp]
    """(N,) intp: Positions by falling probability; equally probable ones in the catalogue's order."""
    probabilities: NDArray[np.float64]
    """(N,) float64: p̂_i of equation 3.2 in that order, the largest first; they sum to 1."""
    cumulative: NDArray[np.float64]
    """(N + 1,) float64: P_cached(k) of equation 3.3 for k = 0 … N."""
    seen: int
    """How many objects stand above the prior, as somebody asked for them: the first of the ranking."""

    def __len__(self) -> int:
        return len(self.catalogue)

    def top(self, count: int) -> tuple[str, ...]:
        """The ``count`` most probable objects, most probable first."""
        return tuple(self.catalogue[position] for position in self.order[:count].tolist())

    def probability_of(self, object_ids: Iterable[str]) -> float:
        """Probability that a request is for one of these objects; unknown ones add nothing."""
        inside = [self.positions[name] for name in object_ids if name in self.positions]
        by_position = np.empty(len(self.catalogue))
        by_position[self.order] = self.probabilities
        return float(by_position[inside].sum())


class RequestDistribution:
    """p̂_i = (M_i + alpha_i) / (ΣM + sum of alpha) over the objects of one catalogue.

    Parameters
    ----------
    object_ids : iterable of str
        The catalogue. N, the number of objects, is known from the start.
    prior : float
        alpha of an object without a history; 1 as in the dissertation.
    prior_mass : float
        Most that these alphas may sum to: in larger catalogues each gets ``prior_mass`` / N. One request per
        object of 500 drowns the first hundreds of real ones. ``inf`` as in the dissertation.
    half_life_s : float
        Seconds in which a count loses half of its weight; ``inf`` never forgets.

    Raises
    ------
    InvalidArgument
        If ``prior``, ``prior_mass`` or ``half_life_s`` is not positive.

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
        self._prior = prior  # as of the present number of objects
        self._half_life_s = half_life_s
        # Counts are kept in units of a request made at `_origin_s`: then decay touches no count, a new
        # request just weighs more than old ones.
        self._origin_s = 0.0
        self._index: dict[str, int] = {}
        self.object_ids: tuple[str, ...] = ()
        """The catalogue, in its order."""
        self._counts = np.zeros(0)
        self.set_objects(object_ids)

    def __len__(self) -> int:
        return len(self.object_ids)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._index

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Take over a changed catalogue: objects that left are forgotten, new ones start from the prior."""
        ids = tuple(dict.fromkeys(object_ids))
        self._prior = min(self._largest_prior, self._prior_mass / max(1, len(ids)))
        counts = np.zeros(len(ids))
        for position, object_id in enumerate(ids):
            old = self._index.get(object_id)
            if old is not None:
                counts[position] = self._counts[old]
        self.object_ids, self._counts = ids, counts
        self._index = {object_id: position for position, object_id in enumerate(ids)}

    def count(self, object_id: str, now_s: float, weight: float = 1.0) -> bool:
        """Count one request; False if the catalogue has no such object (it is not counted then)."""
        position = self._index.get(object_id)
        if position is None:
            return False
        # First the weight of now: reading it may rescale the counts.
        weight_now = self._weight_of(now_s)
        self._counts[position] += weight * weight_now
        return True

    def decayed(self, count: float, age_s: float) -> float:
        """What is left of a count after this time."""
        return count * math.exp2(-age_s / self._half_life_s)

    def counts(self, now_s: float) -> dict[str, float]:
        """M_i with decay as of now, only of objects that were asked for; for storing."""
        weight_now = self._weight_of(now_s)
        scaled = self._counts / weight_now
        return {self.object_ids[position]: float(scaled[position]) for position in np.flatnonzero(scaled)}

    def ranking(self, now_s: float) -> Ranking:
        """Estimate the distribution as of now."""
        weight_now = self._weight_of(now_s)
        weights = self._counts / weight_now + self._prior
        # Stable, so that ties keep the catalogue's order.
        order = np.argsort(-weights, kind="stable")
        ordered = weights[order]
        probabilities = ordered / max(ordered.sum(), self._prior)
        cumulative = np.zeros(len(order) + 1)
        np.cumsum(probabilities, out=cumulative[1:])
        np.minimum(cumulative, 1.0, out=cumulative)
        seen = int(np.count_nonzero(weights > self._prior))
        return Ranking(self.object_ids, self._index, order, probabilities, cumulative, seen)

    def _weight_of(self, now_s: float) -> float:
        """Weight of a request made now, in units of one made at the origin."""
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
        self._recent: OrderedDict[str, None] = OrderedDict()  # the latest last
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
            self._recent[object_id] = None
            self._recent.move_to_end(object_id)
            if len(self._recent) > _RECENT_OBJECTS:
                self._recent.popitem(last=False)
            if self._journal:
                self._touched.add(object_id)
            return True

    def recent(self) -> tuple[str, ...]:
        """Objects that were asked for, the latest first, each once; 10,000 at most."""
        with self._lock:
            return tuple(reversed(self._recent))

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
            for name in [name for name in self._recent if name not in self._distribution]:
                del self._recent[name]
            for name in [name for name in self._asked if name not in self._distribution]:
                del self._asked[name]

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
