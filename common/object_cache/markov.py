"""Prediction of the next object: the Markov model that an edge learns from its devices (dissertation, 4.3).

P(next | history) = (N + alpha) / (sum of N + sum of alpha), the MAP estimate of section 4.3.1.2, with sparse
counts N that all devices share. The paper gives no value of the prior alpha. One transition per object, its
prior for popularity (3.3.2.2), would outweigh in a catalogue of 500 the twenty real transitions of a row.
Here, the prior has the mass of a few transitions per history, distributed as the model of the next lower
order predicts, down to the popularity of the objects and the uniform distribution. So histories without
counts need no special case.
``backoff=False`` with a uniform prior is the textbook model.

All times are from the edge's clock; clocks of devices are not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.object_cache.transitions import (
    NEGLIGIBLE,
    DeviceHistories,
    ObjectSlots,
    Transition,
    TransitionCounts,
)

LARGEST_ORDER = 3
_STAYING_WEIGHT = 0.01
_PREDICTIONS_MAX = 1000


@dataclass(frozen=True, slots=True)
class MarkovSettings:
    """Settings of a Markov model.

    Raises
    ------
    InvalidArgument
        If the order is not 0 to 3, or another value is not positive.
    """

    order: int = 1
    """Length of the history used for predictions, 0 to 3; 1 in the dissertation, 0 is popularity alone."""
    prior: float = 5.0
    """Sum of alpha per history, in transitions. 5 predicts generated and real visitors best."""
    backoff: bool = True
    """Whether the prior follows the prediction of the next lower order; otherwise it is uniform, and
    histories without counts give no prediction."""
    half_life_s: float = math.inf
    """Half-life of a count [s]; ``inf``, as in the dissertation, disables decay."""
    devices_max: int = 10_000
    """Maximum number of devices with a stored history."""
    rows_max: int = 100_000
    """Maximum number of histories with counts; the least recently used is deleted. Matters from order 2
    on."""
    pause_s: float = math.inf
    """Silence after which a device starts a new history [s]."""

    def __post_init__(self) -> None:
        if not 0 <= self.order <= LARGEST_ORDER:
            raise InvalidArgument(f"the order of a Markov model is 0 to {LARGEST_ORDER}, got {self.order}")
        if not 0 < self.prior < math.inf:
            raise InvalidArgument(f"the prior must be positive and finite, got {self.prior}")
        if not (self.half_life_s > 0 and self.pause_s > 0):
            raise InvalidArgument(
                f"half-life and pause must be positive, got {self.half_life_s} s and {self.pause_s} s"
            )
        if min(self.rows_max, self.devices_max) < 1:
            raise InvalidArgument(
                f"histories and devices must be at least 1, got {self.rows_max} and {self.devices_max}"
            )


@dataclass(frozen=True, slots=True)
class TransitionCount:
    """One count of a Markov model, in the form in which it is stored."""

    history: tuple[str, ...]
    """Preceding objects, the latest last; empty for the popularity of the object."""
    object_id: str
    """The object that followed."""
    count: float
    """Count with decay up to the time of storing. In a change, 0 means that the count was deleted."""
    age_s: float = 0.0
    """Time since storing [s], for `MarkovModel.restore`."""


@dataclass(frozen=True, slots=True)
class MarkovChanges:
    """Changes that a store must write, in this order."""

    removed_objects: tuple[str, ...] = ()
    """Delete every count that has one of these objects in its history or as its next object."""
    counts: tuple[TransitionCount, ...] = ()
    """Replace these counts; delete those that are 0."""

    def __bool__(self) -> bool:
        return bool(self.removed_objects or self.counts)


class MarkovModel:
    """Transitions between the objects of one catalogue.

    Parameters
    ----------
    object_ids : iterable of str
        The catalogue.
    settings : MarkovSettings, optional
    journal : bool
        Whether to record changes for `changes`. Without a reader, the record would grow without limit.

    Notes
    -----
    Source: Cachier dissertation, section 4.3.1. Not thread-safe. Memory is bounded by the settings, and for
    order 1 by the number of different pairs of consecutive objects.
    """

    def __init__(
        self,
        object_ids: Iterable[str] = (),
        settings: MarkovSettings | None = None,
        *,
        journal: bool = False,
    ) -> None:
        self._settings = settings if settings is not None else MarkovSettings()
        self._histories = DeviceHistories(
            max(1, self._settings.order), self._settings.devices_max, self._settings.pause_s
        )
        self._journal = journal
        self._removed: dict[str, None] = {}
        self._predicted: dict[tuple[tuple[int, ...], int | None], NextObjects] = {}
        """Cached predictions, valid until a count changes; not used if counts decay."""
        self._objects = ObjectSlots()
        self._counts = TransitionCounts(self._settings.half_life_s, self._settings.rows_max, journal=journal)
        self.staying = 0.0
        """Share of observations in which the device still viewed the same object; a rolling mean."""
        self.set_objects(object_ids)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._objects.by_id

    @property
    def devices(self) -> int:
        """Number of devices with a stored history."""
        return len(self._histories)

    @property
    def transitions(self) -> int:
        """Number of different transitions with a count, over all orders."""
        return len(self._counts)

    # Learning

    def observe(self, device_id: str, object_id: str, now_s: float) -> bool:
        """Record that a device views an object; returns False if the catalogue has no such object.

        Repeating the same object is not a transition; it only renews the time of the history.
        """
        slot = self._objects.by_id.get(object_id)
        if slot is None:
            return False
        history, last = self._histories.append(device_id, slot, now_s)
        if last is not None:
            self.staying += _STAYING_WEIGHT * ((last == slot) - self.staying)
        if history[-1:] != (slot,):
            # Before adding: computing the current weight may rescale the counts.
            weight = self._counts.weight_at(now_s)
            for length in range(min(self._settings.order, len(history)) + 1):
                transition = (history[len(history) - length :], slot)
                self._counts.add(transition, weight)
            self._predicted.clear()
        return True

    def set_objects(self, object_ids: Iterable[str]) -> None:
        """Apply a changed catalogue: transitions from and to removed objects are deleted."""
        wanted = dict.fromkeys(object_ids)
        self._predicted.clear()
        removed = [object_id for object_id in self._objects.by_id if object_id not in wanted]
        if removed:
            gone = self._objects.remove(removed)
            self._histories.remove(gone)
            self._counts.remove(gone)
            if self._journal:
                self._removed.update(dict.fromkeys(removed))
        self._objects.add([object_id for object_id in wanted if object_id not in self])
        self._counts.resize(len(self._objects.present))

    # Predicting

    def histories(self, now_s: float, within_s: float, most: int) -> list[tuple[str, ...]]:
        """The last objects of each present device, the latest last.

        A device is present if its last observation is at most ``within_s`` old. Only the ``most`` devices
        with the latest observations are considered.
        """
        present = self._histories.present(now_s, within_s, most)
        return [self._objects.names(self._histories.of(device_id, now_s)) for device_id in present]

    def next_objects(self, history: str | Sequence[str], now_s: float, top: int | None = None) -> NextObjects:
        """The PDF of the next object after a history (section 4.3.1.3).

        Parameters
        ----------
        history : str or sequence of str
            The object that a device views, or its last objects, the latest last. Objects before an unknown
            one are ignored.
        now_s : float
            The edge's time.
        top : int, optional
            Maximum number of objects; by default all objects with counts.
        """
        past: tuple[int, ...] = ()
        for name in (history,) if isinstance(history, str) else history:
            slot = self._objects.by_id.get(name)
            past = (*past, slot) if slot is not None else ()
        return self._predict(past, now_s, top)

    def next_for_device(self, device_id: str, now_s: float, top: int | None = None) -> NextObjects:
        """The PDF after the device's last objects; by popularity for an unknown device."""
        return self._predict(self._histories.of(device_id, now_s), now_s, top)

    def _predict(self, past: tuple[int, ...], now_s: float, top: int | None) -> NextObjects:
        """P(next) of the slots that have counts, the most probable first."""
        if (past, top) in self._predicted:
            return self._predicted[past, top]
        probabilities, listed = self._distribution(past, now_s)
        slots = np.flatnonzero(listed)
        if top is not None and 0 < top < len(slots):
            # Keep all that are as probable as the last one, so that the stable sort resolves ties.
            least = np.partition(probabilities[slots], len(slots) - top)[len(slots) - top]
            slots = slots[probabilities[slots] >= least]
        slots = slots[np.argsort(-probabilities[slots], kind="stable")][:top]
        found = NextObjects(self._objects.names(slots.tolist()), probabilities[slots])
        if math.isinf(self._settings.half_life_s) and len(self._predicted) < _PREDICTIONS_MAX:
            self._predicted[past, top] = found
        return found

    def _distribution(
        self, past: tuple[int, ...], now_s: float
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """P(next) of every slot, and a mask of the slots with counts; both (S,)."""
        prior = self._settings.prior * self._counts.weight_at(now_s)
        support = self._objects.present.copy()
        if past:
            support[past[-1]] = False  # the next object differs from the current one
        probabilities = support / max(1, int(support.sum()))
        listed = np.zeros(len(support), dtype=np.bool_)
        longest = min(self._settings.order, len(past))
        for length in range(0 if self._settings.backoff else longest, longest + 1):
            if length == 0:
                slots: NDArray[np.intp] = np.flatnonzero(support & (self._counts.popularity > 0))
                weights = self._counts.popularity[slots]
            else:
                row = self._counts.rows.get(past[len(past) - length :])
                if row is None:
                    continue
                slots = np.fromiter(row, np.intp, len(row))
                weights = np.fromiter(row.values(), np.float64, len(row))
            total = prior + float(weights.sum())
            probabilities *= prior / total
            probabilities[slots] += weights / total
            listed[slots] = True
        return probabilities, listed

    # Storing

    def restore(self, counts: Iterable[TransitionCount], now_s: float) -> int:
        """Add stored counts to the model, decayed by their age; returns the number of counts added.

        Counts of objects not in the catalogue, of a higher order, or with negligible decayed values are
        skipped.

        Raises
        ------
        InvalidArgument
            If a count or an age is negative or not finite.
        """
        weight_now = self._counts.weight_at(now_s)
        self._predicted.clear()
        taken = 0
        for stored in counts:
            if not (0 <= stored.count < math.inf and 0 <= stored.age_s < math.inf):
                raise InvalidArgument(f"not a valid stored count: {stored}")
            count = stored.count * math.exp2(-stored.age_s / self._settings.half_life_s)
            slots = self._objects.of((*stored.history, stored.object_id))
            if slots is None or len(stored.history) > self._settings.order or count < NEGLIGIBLE:
                continue
            self._counts.add((slots[:-1], slots[-1]), count * weight_now, stored=True)
            taken += 1
        return taken

    def changes(self, now_s: float) -> MarkovChanges:
        """Changes since the last call, for a store to write; empty without a journal.

        If writing fails, pass the changes to `redo`; the next call then includes them.
        """
        weight_now = self._counts.weight_at(now_s)
        touched, removed = self._counts.drain(), tuple(self._removed)
        self._removed = {}
        counts = (self._counts.weight_of(transition) / weight_now for transition in touched)
        return MarkovChanges(removed, tuple(map(self._stored, touched, counts)))

    def redo(self, changes: MarkovChanges) -> None:
        """Record changes again because they could not be written."""
        self._removed.update(dict.fromkeys(changes.removed_objects))
        for change in changes.counts:
            slots = self._objects.of((*change.history, change.object_id))
            if slots is not None:
                self._counts.touch([(slots[:-1], slots[-1])])

    def _stored(self, transition: Transition, count: float) -> TransitionCount:
        history, slot = transition
        return TransitionCount(self._objects.names(history), self._objects.names((slot,))[0], count)
