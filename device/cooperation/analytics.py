"""Popularity and transition counts shared by devices nearby, and predictions from them (5.1.2).

Uses the same MAP rule as the edge (`MarkovModel`), on the counters in the store; no edge is needed. A peer
that writes wrong counts can cause useless fetches, but only of objects of the catalogue, and no wrong
answers.

Counts decay, like the edge's request counts (decisions 017 and 030).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, wait

from nearsight.common.background.futures import flat, pending, then
from nearsight.common.errors import NearsightError
from nearsight.common.object_cache.markov import MarkovModel, MarkovSettings, TransitionCount
from nearsight.device.cooperation.context import CooperationContext, Steps
from nearsight.device.cooperation.protocol import next_key, popularity_key
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, Prediction

MERGE_AFTER_S = 1.0
"""Interval in which steps are collected before they are added to the counters in the store [s]."""
PERIOD_S = 3600.0
"""Duration of a period of counters [s]. The counts of a period have no weight one period after its end."""
POPULARITY_AGE_S = 5.0
"""Age up to which popularities are used again without reading the store [s]."""

Counts = Mapping[str, float]


class FadingCounts:
    """Counters in the store that decay: one key for each period, of which the last two are read.

    Counts of the current period have full weight. The weight of the previous period falls linearly from 1 to
    0 during the current one, so that no count changes abruptly when a period ends. On average, a count loses
    half of its weight within one period. The store deletes older keys when they expire.

    Parameters
    ----------
    context : CooperationContext
        The store, and the date. Devices whose dates differ by hours do not benefit from each other's counts.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._store = context.store
        self._clock = context.clock

    def add(self, key: str, counts: Mapping[str, int]) -> Future[None]:
        """Add counts to the current period."""
        period = int(self._clock.wall() // PERIOD_S)
        return self._store.merge(f"{key}/{period}", counts, ttl_s=2 * PERIOD_S)

    def read(self, key: str) -> Future[Counts]:
        """The decayed counts of a key."""
        period, elapsed_s = divmod(self._clock.wall(), PERIOD_S)
        weight = 1.0 - elapsed_s / PERIOD_S
        now, before = (self._store.counts(f"{key}/{int(period) - back}") for back in (0, 1))

        def both(new: Mapping[str, int], old: Mapping[str, int]) -> Counts:
            return {name: new.get(name, 0) + weight * old.get(name, 0) for name in (*new, *old)}

        return flat(then(now, lambda new: then(before, lambda old: both(new, old))))


class PeerForecasts:
    """A `PredictionSource` that reads the counters of the store.

    Parameters
    ----------
    context : CooperationContext
        The store, and the objects of the catalogue.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._context = context
        self._counts = FadingCounts(context)
        self._popularity: Counts = {}
        self._read_s = -math.inf

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """The objects that followed this one, and the popular ones. Reports nothing: see `StepCounts`.

        ``timeout_s`` is not used: the store's own timeout of reads is shorter.
        """
        del timeout_s
        result: Future[Prediction] = pending()
        self._context.background.submit(lambda: self._context.run(self._predict(current, result)))
        return result

    def _predict(self, current: str, result: Future[Prediction]) -> Steps[None]:
        context = self._context
        if context.clock.monotonic() >= self._read_s + POPULARITY_AGE_S:
            popularity = yield self._counts.read(popularity_key(context.catalogue)), math.inf
            if not isinstance(popularity, NearsightError):  # an outdated popularity is better than none
                self._popularity, self._read_s = popularity, context.clock.monotonic()
        followed = yield self._counts.read(next_key(context.catalogue, current)), math.inf
        if isinstance(followed, NearsightError):
            result.set_exception(followed)
        else:
            result.set_result(self._prediction(current, followed))

    def _prediction(self, current: str, followed: Counts) -> Prediction:
        popular, known = self._popularity, self._context.digests.object_ids
        model = MarkovModel(known or {current, *popular, *followed}, MarkovSettings())
        counts = [TransitionCount((), name, count) for name, count in popular.items()]
        counts += [TransitionCount((current,), name, count) for name, count in followed.items()]
        model.restore(counts, 0.0)
        return Prediction(model.next_objects(current, 0.0, MOST_NEXT_OBJECTS), revision=None)


class StepCounts:
    """Adds the steps of this device to the counters in the store, in batches, each once. Thread-safe.

    After a call of `KVStore.merge`, the store is responsible: it sends the counts again until they are
    acknowledged.

    Parameters
    ----------
    context : CooperationContext
        The store.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._context = context
        self._counts = FadingCounts(context)
        self._lock = threading.Lock()
        self._pending: dict[str, Counter[str]] = {}

    def count(self, previous: str, current: str) -> None:
        """Count a recognition of ``current`` after ``previous`` ("": none), unless they are equal."""
        if current == previous:
            return
        context = self._context
        context.account.add(steps=1)
        keys = [popularity_key(context.catalogue)]
        if previous:
            keys.append(next_key(context.catalogue, previous))
        with self._lock:
            for key in keys:
                self._pending.setdefault(key, Counter())[current] += 1
        context.background.submit(self._flush, name="steps", after_s=MERGE_AFTER_S)

    def _flush(self) -> list[Future[None]]:
        # The store retries failed writes.
        with self._lock:
            waiting, self._pending = self._pending, {}
        return [self._counts.add(key, dict(counts)) for key, counts in waiting.items()]

    def close(self, timeout_s: float) -> None:
        """Write the last steps; call after the background thread has ended."""
        wait(self._flush(), timeout_s)
