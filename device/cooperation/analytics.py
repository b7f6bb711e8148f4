"""What may be seen next, from what the devices nearby saw: no edge is needed (dissertation, section 5.1.2.1).

The same MAP rule as at the edge (`MarkovModel`), on the counters that the devices keep together. A peer that
writes wrong counts can make others fetch in vain, but only objects of the catalogue, and recognise nothing
wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass

from nearsight.common.background.futures import pending, when_done
from nearsight.common.background.worker import BackgroundWorker, Job
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.object_cache.markov import MarkovModel, MarkovSettings, TransitionCount
from nearsight.device.cooperation.account import Accountant
from nearsight.device.cooperation.protocol import CooperationRules, SharedStore, next_key, popularity_key
from nearsight.device.cooperation.trust import ModelDigests
from nearsight.device.predictions import MOST_NEXT_OBJECTS, Prediction

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Popularity:
    counts: Counts
    read_s: float


class PeerForecasts:
    """A `PredictionSource` that reads the counters of the store.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    store : SharedStore
        Where the counters are.
    vouchers : ModelDigests
        Which objects there are.
    background : BackgroundWorker
        Runs everything here.
    rules : CooperationRules
        How long a popularity is known.
    clock : Clock
        For that.
    """

    def __init__(
        self,
        catalogue: str,
        store: SharedStore,
        vouchers: ModelDigests,
        background: BackgroundWorker,
        rules: CooperationRules,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._digests = vouchers
        self._background = background
        self._rules = rules
        self._clock = clock
        self._popularity = _Popularity({}, -math.inf)

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """What followed this object, and what is popular. Nothing is reported by it: see `StepCounts`.

        The store ends its reads by itself, sooner than ``timeout_s``.
        """
        del timeout_s
        result: Future[Prediction] = pending()

        def followed(outcome: Counts | NearsightError) -> None:
            if isinstance(outcome, NearsightError):
                result.set_exception(outcome)
            else:
                result.set_result(self._prediction(current, outcome))

        def ask() -> None:
            when_done(self._store.counts(next_key(self._catalogue, current)), self._background, followed)

        self._background.submit(lambda: self._after_popularity(ask))
        return result

    def _after_popularity(self, go_on: Job) -> None:
        if self._clock.monotonic() < self._popularity.read_s + self._rules.popularity_age_s:
            go_on()
            return

        def read(outcome: Counts | NearsightError) -> None:
            if not isinstance(outcome, NearsightError):
                self._popularity = _Popularity(outcome, self._clock.monotonic())
            go_on()  # an old popularity is better than none

        when_done(self._store.counts(popularity_key(self._catalogue)), self._background, read)

    def _prediction(self, current: str, followed: Counts) -> Prediction:
        popular = self._popularity.counts
        known = self._digests.object_ids
        model = MarkovModel(known or {current, *popular, *followed}, MarkovSettings())
        counts = [TransitionCount((), name, float(count)) for name, count in popular.items()]
        counts += [TransitionCount((current,), name, float(count)) for name, count in followed.items()]
        model.restore(counts, 0.0)
        return Prediction(model.next_objects(current, 0.0, MOST_NEXT_OBJECTS), revision=None)


class StepCounts:
    """Adds the steps of this device to the counters in the store, several at a time, each exactly once.

    Once `KVStore.merge` was called, the counts are the store's: it sends them again until they arrived.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    store : SharedStore
        Where the counters are.
    accountant : Accountant
        Told how many steps there were.
    background : BackgroundWorker
        Runs everything here.
    rules : CooperationRules
        How often.
    """

    def __init__(
        self,
        catalogue: str,
        store: SharedStore,
        accountant: Accountant,
        background: BackgroundWorker,
        rules: CooperationRules,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._accountant = accountant
        self._background = background
        self._rules = rules
        self._waiting: dict[str, Counter[str]] = {}

    def stepped(self, previous: str, current: str) -> None:
        """The device came to an object, after another one ("": none). Going on to look at it is no step."""
        if current != previous:
            self._background.submit(lambda: self._count(previous, current))

    def _count(self, previous: str, current: str) -> None:
        self._accountant.add(steps=1)
        self._add(popularity_key(self._catalogue), current)
        if previous:
            self._add(next_key(self._catalogue, previous), current)
        self._background.submit(self._hand_over, name="steps", after_s=self._rules.merge_s)

    def _add(self, key: str, object_id: str) -> None:
        self._waiting.setdefault(key, Counter())[object_id] += 1

    def _hand_over(self) -> None:
        self._flush()

    def _flush(self) -> list[Future[None]]:
        waiting, self._waiting = self._waiting, {}
        return [self._store.merge(key, dict(counts)) for key, counts in waiting.items()]

    def close(self, timeout_s: float) -> None:
        """Hand over the last steps; call after the background thread has ended."""
        wait(self._flush(), timeout_s)
