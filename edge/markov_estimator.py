"""The Markov Estimator of figure 4.5: what each device may ask for next, learnt from all of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from nearsight.common.clock import Clock
from nearsight.common.object_cache.markov import MarkovChanges, MarkovModel, MarkovSettings, TransitionCount
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.edge.settings import TransitionSettings


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
