"""What devices may ask for next, learnt from all of them, and what of that the edge fetches in advance.

`MarkovEstimator` is the Markov Estimator of figure 4.5. `IdlePrefetch` chooses, while nobody asks, what the
present devices are likely to look at next.

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
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.common.object_cache.markov import MarkovChanges, MarkovModel, MarkovSettings, TransitionCount
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.edge.profiler import Costs
from nearsight.edge.settings import TransitionSettings

_FAVOUR_OF_HELD = 1.5
_MEMORY = 20.0  # promised requests that the correction looks back over
_FORGIVING = 0.995  # of the memory that a choice leaves: it must end while nothing is prefetched


class MarkovEstimator:
    """The transitions of one catalogue, shared by the threads of the daemon.

    Parameters
    ----------
    object_ids : iterable of str
        The catalogue.
    settings : TransitionSettings
        How transitions are learnt, and how many objects are predicted.
    clock : Clock
        The edge's time; what the clocks of devices say plays no role.
    journal : bool
        Whether to note changes for `changes`.
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
        """Devices that are remembered."""
        with self._lock:
            return self._model.devices

    @property
    def transitions(self) -> int:
        """Different transitions that were seen."""
        with self._lock:
            return self._model.transitions

    @property
    def staying(self) -> float:
        """Share of the requests that are for what the device looked at already."""
        with self._lock:
            return self._model.staying

    def observe(self, device_id: str, object_id: str) -> NextObjects | None:
        """A device looks at an object: learn from it, and say what may follow.

        Returns
        -------
        NextObjects or None
            At most ``settings.top`` objects; None if the catalogue has no such object. A device without an
            id gets what follows the object, and nothing is learnt of it.
        """
        now_s = self._clock.monotonic()
        with self._lock:
            if not device_id:
                known = object_id in self._model
                return self._model.next_objects(object_id, now_s, self._top) if known else None
            known = self._model.observe(device_id, object_id, now_s)
            return self._model.next_for_device(device_id, now_s, self._top) if known else None

    def expected_next(self, within_s: float, most: int) -> dict[str, float]:
        """Probability that the next step of one of the present devices leads to an object.

        Parameters
        ----------
        within_s : float
            Devices that were heard of in the last so many seconds are present.
        most : int
            Devices that are looked at, the latest ones.
        """
        now_s = self._clock.monotonic()
        with self._lock:
            histories = Counter(self._model.histories(now_s, within_s, most))
        total: dict[str, float] = {}
        for history, devices in histories.items():
            with self._lock:  # anew for each: requests must not wait for all of them
                following = self._model.next_objects(history, now_s, self._top)
            for object_id, p in zip(following.object_ids, following.probabilities.tolist(), strict=True):
                total[object_id] = total.get(object_id, 0.0) + devices * p / histories.total()
        return total

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Take over a changed catalogue."""
        with self._lock:
            self._model.set_objects(object_ids)

    def changes(self) -> MarkovChanges:
        """What changed since the last call; see `MarkovModel.changes`."""
        with self._lock:
            return self._model.changes(self._clock.monotonic())

    def redo(self, changes: MarkovChanges) -> None:
        """These changes could not be written."""
        with self._lock:
            self._model.redo(changes)

    def restore(self, counts: Iterable[TransitionCount]) -> int:
        """Take over what an earlier run learnt; returns how many counts were taken over."""
        with self._lock:
            return self._model.restore(counts, self._clock.monotonic())


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
        self.prefetched: frozenset[str] = frozenset()
        """Objects of the snapshot that were prefetched."""
        self._chances: dict[str, float] = {}
        self._promised = self._kept = 0.0
        self._asked: set[str] = set()
        self._entered = self._useful = self._wasted = 0

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
            name: p * (_FAVOUR_OF_HELD if name in self.prefetched else 1.0)
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
            new, before = frozenset(prefetched), self.prefetched
            entered = len(new - before)
            wasted = len([name for name in before - new if name not in residents and name not in self._asked])
            self._entered += entered
            self._wasted += wasted
            self.prefetched = new
            self._asked &= new
            return entered, wasted

    def requested(self, object_id: str | None) -> bool:
        """A request came, for an object if one is known; whether it is the first for a prefetched one."""
        if not self.prefetched:
            return False
        with self._lock:
            self._promised += sum(self._chances.get(name, 0.0) for name in self.prefetched)
            if self._promised > _MEMORY:
                self._kept *= _MEMORY / self._promised
                self._promised = _MEMORY
            if object_id not in self.prefetched:
                return False
            self._kept += 1.0
            if object_id in self._asked:
                return False
            self._asked.add(object_id)
            self._useful += 1
            return True
