"""Popularity and transitions, counted by all devices nearby together (dissertation, section 5.1.2)."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, wait

from nearsight.common.background import BackgroundWorker
from nearsight.device.cooperation.account import Accountant
from nearsight.device.cooperation.keys import next_key, popularity_key
from nearsight.device.cooperation.ports import SharedStore
from nearsight.device.cooperation.rules import CooperationRules


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
