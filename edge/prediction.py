"""Prediction of the next objects of devices, and the choice of objects to prefetch.

`MarkovEstimator` is the Markov Estimator of figure 4.5; it learns from all devices. `IdlePrefetch` chooses,
while the edge is idle, the probable next objects of the present devices.

Popularity alone fills the cache with objects of many requests. The first visitor of a section requests
objects without recent requests; the Markov model predicts them from visitors of other days. A few such
objects join the snapshot as prefetched objects. They follow the rule for all objects,
recall · p · L_miss > f(k + 1) - f(k), where p follows from the present positions of the devices. A device may
also request its present object again, so an object that was prefetched stays while its visitor is there. Each
prefetched object is counted as useful if it was requested, and otherwise as wasted.

A model with few transitions overestimates p if requests do not follow paths. Therefore p is corrected by the
ratio of the actual to the predicted requests for prefetched objects.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from nearsight.common.clock import Clock
from nearsight.common.object_cache.markov import MarkovChanges, MarkovModel, MarkovSettings, TransitionCount
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.edge.cache_size import Costs
from nearsight.edge.settings import TransitionSettings

# Factor in favour of prefetched objects.
_PREFETCHED_FACTOR = 1.5
# Window of the correction, in predicted requests.
_MAX_PREDICTED = 20.0
# Decay of both counts of the correction per choice; otherwise a low ratio would stay while nothing is
# prefetched.
_DECAY_PER_CHOICE = 0.995


class MarkovEstimator:
    """Transitions between the objects of one catalogue; thread-safe.

    Parameters
    ----------
    object_ids : iterable of str
        Objects of the catalogue.
    settings : TransitionSettings
        How transitions are learnt, and the number of predicted objects.
    clock : Clock
        Time of the edge; the clocks of devices are not used.
    journal : bool
        Whether to record changes for `changes`.
    """

    def __init__(
        self, object_ids: Iterable[str], settings: TransitionSettings, clock: Clock, *, journal: bool = False
    ) -> None:
        chosen = MarkovSettings(**settings.model_dump(exclude={"top"}))
        self._model = MarkovModel(object_ids, chosen, journal=journal)
        self._top = settings.top
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def devices(self) -> int:
        """Number of devices with a history."""
        with self._lock:
            return self._model.devices

    @property
    def transitions(self) -> int:
        """Number of different transitions with a count."""
        with self._lock:
            return self._model.transitions

    @property
    def staying(self) -> float:
        """Share of requests for the same object as the device's last one; a rolling mean."""
        with self._lock:
            return self._model.staying

    def observe(self, device_id: str, object_id: str) -> NextObjects | None:
        """Learn that a device saw an object; return the probable next objects.

        Returns
        -------
        NextObjects or None
            At most ``settings.top`` objects; None if the catalogue does not have the object. For a device
            without an id, the prediction depends on this object alone, and nothing is learnt.
        """
        now_s = self._clock.monotonic()
        with self._lock:
            if not device_id:
                known = object_id in self._model
                return self._model.next_objects(object_id, now_s, self._top) if known else None
            known = self._model.observe(device_id, object_id, now_s)
            return self._model.next_for_device(device_id, now_s, self._top) if known else None

    def expected_next(self, within_s: float, most: int) -> dict[str, float]:
        """Probability that the next request of a present device is for an object, by object.

        With the probability `staying`, a device requests its present object again.

        Parameters
        ----------
        within_s : float
            Devices are present if they were active in this time [s].
        most : int
            Maximum number of devices, the most recently active ones.
        """
        now_s = self._clock.monotonic()
        with self._lock:
            histories = Counter(self._model.histories(now_s, within_s, most))
            staying = self._model.staying
        total: defaultdict[str, float] = defaultdict(float)
        for history, devices in histories.items():
            share = devices / histories.total()
            with self._lock:  # released after each history, so that requests do not wait for all of them
                following = self._model.next_objects(history, now_s, self._top)
            for object_id, p in zip(following.object_ids, following.probabilities.tolist(), strict=True):
                total[object_id] += share * (1.0 - staying) * p
            for object_id in history[-1:]:
                total[object_id] += share * staying
        return total

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Replace the objects of the catalogue."""
        with self._lock:
            self._model.set_objects(object_ids)

    def changes(self) -> MarkovChanges:
        """Changes since the last call; see `MarkovModel.changes`."""
        with self._lock:
            return self._model.changes(self._clock.monotonic())

    def redo(self, changes: MarkovChanges) -> None:
        """Receive changes that could not be written; `changes` returns them again."""
        with self._lock:
            self._model.redo(changes)

    def restore(self, counts: Iterable[TransitionCount]) -> int:
        """Load the counts of an earlier run; return the number of counts that were loaded."""
        with self._lock:
            return self._model.restore(counts, self._clock.monotonic())


@dataclass(frozen=True, slots=True)
class PrefetchCount:
    """Number of prefetched objects that entered, were requested, and left without a request."""

    entered: int
    useful: int
    wasted: int


class IdlePrefetch:
    """Chooses objects to prefetch, and counts the useful ones.

    Parameters
    ----------
    most : int
        Limit of prefetched objects at the same time; 0 for none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self.prefetched: frozenset[str] = frozenset()
        """Prefetched objects of the active snapshot."""
        self._probabilities: dict[str, float] = {}
        self._predicted = self._actual = 0.0
        self._asked: set[str] = set()
        self.count = PrefetchCount(0, 0, 0)
        """Counts since the start."""

    @property
    def trust(self) -> float:
        """Ratio of actual to predicted requests for prefetched objects, with 1 added to both; at most 1."""
        with self._lock:
            return min(1.0, (self._actual + 1.0) / (self._predicted + 1.0))

    def choose(
        self, expected: Mapping[str, float], residents: Collection[str], costs: Costs
    ) -> tuple[str, ...]:
        """The objects to prefetch, most probable first.

        Parameters
        ----------
        expected : mapping of str to float
            Probability that the next request of a present device is for an object.
        residents : collection of str
            Objects that the cache holds for their popularity.
        costs : Costs
            f, recall and L_miss.
        """
        # Prefetched objects have already cost a fetch. Without the factor, equally probable objects would
        # alternate.
        trust = self.trust
        weighed = {
            name: p * (_PREFETCHED_FACTOR if name in self.prefetched else 1.0)
            for name, p in expected.items()
            if name not in residents
        }
        chosen: list[str] = []
        for name in sorted(weighed, key=lambda name: (-weighed[name], name)):
            k = len(residents) + len(chosen)
            if len(chosen) >= self._most or k + 1 >= len(costs.lookup_ms):
                break
            gain_ms = float(costs.recall[k + 1]) * trust * weighed[name] * costs.miss_ms
            if gain_ms <= float(costs.lookup_ms[k + 1] - costs.lookup_ms[k]):
                break
            chosen.append(name)
        with self._lock:
            self._probabilities = {name: expected[name] for name in chosen}
            self._predicted *= _DECAY_PER_CHOICE
            self._actual *= _DECAY_PER_CHOICE
        return tuple(chosen)

    def built(self, prefetched: Collection[str], residents: Collection[str]) -> tuple[int, int]:
        """Record the prefetched objects of a new snapshot; return the numbers of entered and wasted ones.

        Objects that were prefetched before have left the cache, or are residents now.
        """
        with self._lock:
            new, before = frozenset(prefetched), self.prefetched
            entered = len(new - before)
            wasted = len([name for name in before - new if name not in residents and name not in self._asked])
            count = self.count
            self.count = replace(count, entered=count.entered + entered, wasted=count.wasted + wasted)
            self.prefetched = new
            self._asked &= new
            return entered, wasted

    def requested(self, object_id: str | None) -> bool:
        """Record a request (None: unknown object); return whether it is the first for a prefetched one."""
        if not self.prefetched:
            return False
        with self._lock:
            self._predicted += sum(self._probabilities.get(name, 0.0) for name in self.prefetched)
            if self._predicted > _MAX_PREDICTED:
                self._actual *= _MAX_PREDICTED / self._predicted
                self._predicted = _MAX_PREDICTED
            if object_id not in self.prefetched:
                return False
            self._actual += 1.0
            if object_id in self._asked:
                return False
            self._asked.add(object_id)
            self.count = replace(self.count, useful=self.count.useful + 1)
            return True
