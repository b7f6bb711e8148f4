"""Data structures of a Markov model: object slots, the last objects of each device, and sparse counts.

`markov.MarkovModel` combines them. A *slot* is the array index of an object.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

Transition = tuple[tuple[int, ...], int]
"""A history and the object that followed it, as slots; the history is empty for popularity."""

NEGLIGIBLE = 1e-6
"""Counts below this value are deleted."""

_RESCALE_AT_HALF_LIVES = 64.0


class ObjectSlots:
    """Maps the objects of a changing catalogue to slots. Slots of removed objects are reused."""

    def __init__(self) -> None:
        self.by_id: dict[str, int] = {}
        """Slot of each object."""
        self.present = np.zeros(0, dtype=np.bool_)
        """(S,) bool: whether a slot has an object; S never decreases."""
        self._ids: list[str] = []  # empty for a free slot
        self._free: list[int] = []

    def of(self, object_ids: Iterable[str]) -> tuple[int, ...] | None:
        """Slots of these objects; None if one of them is not in the catalogue."""
        slots = [self.by_id.get(object_id) for object_id in object_ids]
        known = tuple(slot for slot in slots if slot is not None)
        return known if len(known) == len(slots) else None

    def names(self, slots: Iterable[int]) -> tuple[str, ...]:
        """Objects of these slots."""
        return tuple(map(self._ids.__getitem__, slots))

    def remove(self, object_ids: Sequence[str]) -> tuple[int, ...]:
        """Remove objects; returns their slots, which are now free."""
        gone = tuple(self.by_id.pop(object_id) for object_id in object_ids)
        for slot in gone:
            self._ids[slot] = ""
            self.present[slot] = False
        self._free.extend(reversed(gone))
        return gone

    def add(self, object_ids: Sequence[str]) -> None:
        """Add objects, each in a free or a new slot."""
        more, old = max(0, len(object_ids) - len(self._free)), len(self._ids)
        self._ids.extend([""] * more)
        # New slots are used first, in order, so that ties between objects keep the catalogue's order.
        self._free.extend(range(old + more - 1, old - 1, -1))
        self.present = np.concatenate([self.present, np.zeros(more, dtype=np.bool_)])
        for object_id in object_ids:
            slot = self._free.pop()
            self.by_id[object_id] = slot
            self._ids[slot] = object_id
            self.present[slot] = True


class DeviceHistories:
    """The last different objects of each device. A common history would mix the visitors.

    Parameters
    ----------
    length : int
        Maximum number of objects per history.
    devices_max : int
        Maximum number of devices; the one with the oldest observation is removed.
    pause_s : float
        Silence after which the history of a device starts anew [s].
    """

    def __init__(self, length: int, devices_max: int, pause_s: float) -> None:
        self._length = length
        self._devices_max = devices_max
        self._pause_s = pause_s
        self._last: OrderedDict[str, tuple[tuple[int, ...], float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def present(self, now_s: float, within_s: float, most: int) -> list[str]:
        """Devices observed in the last ``within_s`` seconds, at most ``most``, the latest first."""
        latest = itertools.islice(reversed(self._last.items()), most)
        return [device_id for device_id, (_, last_s) in latest if now_s - last_s <= within_s]

    def of(self, device_id: str, now_s: float) -> tuple[int, ...]:
        """The device's last objects, the latest last; empty if unknown or silent for ``pause_s``."""
        history, last_s = self._last.get(device_id, ((), now_s))
        return history if now_s - last_s < self._pause_s else ()

    def append(self, device_id: str, slot: int, now_s: float) -> tuple[tuple[int, ...], int | None]:
        """Append an object to the history, unless it is already the last one.

        Returns
        -------
        (tuple of int, int or None)
            The history before this observation, and the device's last object, however long ago; None if there
            is none.
        """
        seen, last_s = self._last.get(device_id, ((), now_s))
        before = seen if now_s - last_s < self._pause_s else ()
        after = before if before[-1:] == (slot,) else (*before, slot)[-self._length :]
        self._last[device_id] = (after, now_s)
        self._last.move_to_end(device_id)
        if len(self._last) > self._devices_max:
            self._last.popitem(last=False)
        return before, seen[-1] if seen else None

    def remove(self, slots: Iterable[int]) -> None:
        """Remove objects; each history keeps only the objects after them."""
        gone = frozenset(slots)
        for device_id, (history, last_s) in self._last.items():
            last_gone = max((at for at, slot in enumerate(history) if slot in gone), default=-1)
            if last_gone >= 0:
                self._last[device_id] = (history[last_gone + 1 :], last_s)


class TransitionCounts:
    """Weights of transitions, in units of one at the time origin, so that decay changes no stored weight.

    Parameters
    ----------
    half_life_s : float
        Half-life of a count [s].
    rows_max : int
        Maximum number of histories with counts; the least recently used is deleted.
    journal : bool
        Whether to record changed counts for `drain`.
    """

    def __init__(self, half_life_s: float, rows_max: int, *, journal: bool) -> None:
        self._half_life_s = half_life_s
        self._rows_max = rows_max
        self._origin_s = 0.0
        self.popularity = np.zeros(0)
        """(S,) float64: weight of each object, regardless of what preceded it."""
        self.rows: OrderedDict[tuple[int, ...], dict[int, float]] = OrderedDict()
        """Weights of the objects that followed each non-empty history, the least recently used one first."""
        # A dictionary used as an ordered set, so that the order of writing is reproducible.
        self._touched: dict[Transition, None] = {}
        self._journal = journal

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def weight_of(self, transition: Transition) -> float:
        """The weight of one transition; 0 if it has none."""
        history, slot = transition
        if not history:
            return float(self.popularity[slot])
        return self.rows.get(history, {}).get(slot, 0.0)

    def touch(self, transitions: Iterable[Transition]) -> None:
        """Record that the counts of these transitions changed."""
        if self._journal:
            self._touched.update(dict.fromkeys(transitions))

    def drain(self) -> list[Transition]:
        """The transitions whose counts changed since the last call."""
        touched, self._touched = list(self._touched), {}
        return touched

    def resize(self, slots: int) -> None:
        """Extend the arrays to ``slots`` entries."""
        more = max(0, slots - len(self.popularity))
        self.popularity = np.concatenate([self.popularity, np.zeros(more)])

    def add(self, transition: Transition, weight: float, *, stored: bool = False) -> None:
        """Count a transition; record the change, unless ``stored``, and counts deleted to make room."""
        history, slot = transition
        if self._journal and not stored:
            self._touched[transition] = None
        if not history:
            self.popularity[slot] += weight
            return
        row = self.rows.get(history)
        if row is None:
            row = self.rows[history] = {}
            if len(self.rows) > self._rows_max:
                old, old_row = self.rows.popitem(last=False)
                self.touch((old, followed) for followed in old_row)
        else:
            self.rows.move_to_end(history)
        row[slot] = row.get(slot, 0.0) + weight

    def remove(self, gone: Sequence[int]) -> None:
        """Delete all counts of the slots ``gone``."""
        self.popularity[list(gone)] = 0.0
        left = frozenset(gone)
        self._touched = {
            (history, slot): None
            for history, slot in self._touched
            if slot not in left and left.isdisjoint(history)
        }
        for history in [history for history in self.rows if not left.isdisjoint(history)]:
            del self.rows[history]
        for row in self.rows.values():
            for slot in left & row.keys():
                del row[slot]
        self._drop_empty_rows()

    def weight_at(self, now_s: float) -> float:
        """Weight of a transition observed now.

        After 64 half-lives the counts are rescaled to a new origin, and negligible ones are deleted, so that
        the current weight stays finite.
        """
        if math.isinf(self._half_life_s):
            return 1.0
        half_lives = (now_s - self._origin_s) / self._half_life_s
        if half_lives <= _RESCALE_AT_HALF_LIVES:
            return math.exp2(half_lives)
        self._origin_s = now_s
        self._rescale(math.exp2(-half_lives))
        return 1.0

    def _rescale(self, factor: float) -> None:
        self.popularity *= factor
        unpopular = (self.popularity > 0) & (self.popularity < NEGLIGIBLE)
        self.popularity[unpopular] = 0.0
        self.touch(((), slot) for slot in np.flatnonzero(unpopular).tolist())
        for history, row in self.rows.items():
            scaled = {slot: weight * factor for slot, weight in row.items()}
            self.touch((history, slot) for slot, weight in scaled.items() if weight < NEGLIGIBLE)
            self.rows[history] = {slot: weight for slot, weight in scaled.items() if weight >= NEGLIGIBLE}
        self._drop_empty_rows()

    def _drop_empty_rows(self) -> None:
        for history in [history for history, row in self.rows.items() if not row]:
            del self.rows[history]
