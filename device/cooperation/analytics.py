"""Popularity and transitions that devices nearby count together, and predictions from them (5.1.2).

The same MAP rule as at the edge (`MarkovModel`), on the counters in the store; no edge is needed. A peer that
writes wrong counts can make others fetch in vain, but only objects of the catalogue, and recognise nothing
wrong.

Counts fade, as at the edge (decisions 017 and 030).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, wait

from nearsight.common.background.futures import flat, pending, then, when_done
from nearsight.common.background.worker import Job
from nearsight.common.errors import NearsightError
from nearsight.common.object_cache.markov import MarkovModel, MarkovSettings, TransitionCount
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.protocol import next_key, popularity_key
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, Prediction

MERGE_AFTER_S = 1.0
"""Steps are counted in the store together, so often."""
PERIOD_S = 3600.0
"""Counts of so long are kept together; after as long again they have faded."""
POPULARITY_AGE_S = 5.0
"""Known popularities are used again for so long."""

Counts = Mapping[str, float]


class FadingCounts:
    """Counters in the store that fade: a key for each period, of which the last two are read.

    Counts of this period have their whole weight. The weight of the period before falls from 1 to 0
    while this one lasts, so that no count changes at once when a period ends. Half of the weight of a count
    is gone after one period, in the mean. The store drops older keys by itself.

    Parameters
    ----------
    context : CooperationContext
        The store, and the date: devices whose dates differ by hours do not help each other.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._store = context.store
        self._clock = context.clock

    def add(self, key: str, counts: Mapping[str, int]) -> Future[None]:
        """Count, in this period."""
        period = int(self._clock.wall() // PERIOD_S)
        return self._store.merge(f"{key}/{period}", counts, ttl_s=2 * PERIOD_S)

    def read(self, key: str) -> Future[Counts]:
        """The counts of a key, as far as they have not faded."""
        period, into_s = divmod(self._clock.wall(), PERIOD_S)
        left = 1.0 - into_s / PERIOD_S
        now, before = (self._store.counts(f"{key}/{int(period) - back}") for back in (0, 1))

        def both(new: Mapping[str, int], old: Mapping[str, int]) -> Counts:
            return {name: new.get(name, 0) + left * old.get(name, 0) for name in (*new, *old)}

        return flat(then(now, lambda new: then(before, lambda old: both(new, old))))


class PeerForecasts:
    """A `PredictionSource` that reads the counters of the store.

    Parameters
    ----------
    context : CooperationContext
        The store, and which objects there are.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._context = context
        self._counts = FadingCounts(context)
        self._popularity: Counts = {}
        self._read_s = -math.inf

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """What followed this object, and what is popular. Nothing is reported by it: see `StepCounts`.

        The store ends its reads by itself, sooner than ``timeout_s``.
        """
        del timeout_s
        context = self._context
        result: Future[Prediction] = pending()

        def followed(outcome: Counts | NearsightError) -> None:
            if isinstance(outcome, NearsightError):
                result.set_exception(outcome)
            else:
                result.set_result(self._prediction(current, outcome))

        def ask() -> None:
            counts = self._counts.read(next_key(context.catalogue, current))
            when_done(counts, context.background, followed)

        context.background.submit(lambda: self._after_popularity(ask))
        return result

    def _after_popularity(self, go_on: Job) -> None:
        context = self._context
        if context.clock.monotonic() < self._read_s + POPULARITY_AGE_S:
            go_on()
            return

        def read(outcome: Counts | NearsightError) -> None:
            if not isinstance(outcome, NearsightError):
                self._popularity, self._read_s = outcome, context.clock.monotonic()
            go_on()  # an old popularity is better than none

        when_done(self._counts.read(popularity_key(context.catalogue)), context.background, read)

    def _prediction(self, current: str, followed: Counts) -> Prediction:
        popular, known = self._popularity, self._context.digests.object_ids
        model = MarkovModel(known or {current, *popular, *followed}, MarkovSettings())
        counts = [TransitionCount((), name, count) for name, count in popular.items()]
        counts += [TransitionCount((current,), name, count) for name, count in followed.items()]
        model.restore(counts, 0.0)
        return Prediction(model.next_objects(current, 0.0, MOST_NEXT_OBJECTS), revision=None)


class StepCounts:
    """Adds the steps of this device to the counters in the store, several at a time, each exactly once.

    Once `KVStore.merge` was called, the counts are the store's: it sends them again until they arrived.

    Parameters
    ----------
    context : CooperationContext
        The store.
    """

    def __init__(self, context: CooperationContext) -> None:
        self._context = context
        self._counts = FadingCounts(context)
        self._waiting: dict[str, Counter[str]] = {}

    def stepped(self, previous: str, current: str) -> None:
        """The device came to an object, after another one ("": none). Going on to look at it is no step."""
        if current != previous:
            self._context.background.submit(lambda: self._count(previous, current))

    def _count(self, previous: str, current: str) -> None:
        context = self._context
        context.account.add(steps=1)
        keys = [popularity_key(context.catalogue)]
        if previous:
            keys.append(next_key(context.catalogue, previous))
        for key in keys:
            self._waiting.setdefault(key, Counter())[current] += 1
        # What fails is sent again by the store.
        context.background.submit(self._flush, name="steps", after_s=MERGE_AFTER_S)

    def _flush(self) -> list[Future[None]]:
        waiting, self._waiting = self._waiting, {}
        return [self._counts.add(key, dict(counts)) for key, counts in waiting.items()]

    def close(self, timeout_s: float) -> None:
        """Hand over the last steps; call after the background thread has ended."""
        wait(self._flush(), timeout_s)
