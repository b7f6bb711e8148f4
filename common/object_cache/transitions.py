"""What a Markov model counts: objects as small numbers, the last objects of each device, sparse counts.

`markov.MarkovModel` joins the parts. Objects are *slots* here, numbers that arrays are indexed by.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

Transition = tuple[tuple[int, ...], int]
"""A history and what followed it, as slots; the history is empty for popularity."""

NEGLIGIBLE = 1e-6
"""A count below this is forgotten."""

_RESCALE_AT_HALF_LIVES = 64.0
_FIRST_CAPACITY = 4


class ObjectSlots:
    """The objects of a changing catalogue and their slots. Slots of removed objects are used again."""

    def __init__(self) -> None:
        self.by_id: dict[str, int] = {}
        """The slot of each object."""
        self.present = np.zeros(0, dtype=np.bool_)
        """Which slots stand for an object: (S,) bool; S never shrinks."""
        self._ids: list[str] = []  # empty for a free slot
        self._free: list[int] = []

    def of(self, object_ids: Iterable[str]) -> tuple[int, ...] | None:
        """Slots of these objects; None if one of them is not in the catalogue."""
        slots = [self.by_id.get(object_id) for object_id in object_ids]
        known = tuple(slot for slot in slots if slot is not None)
        return known if len(known) == len(slots) else None

    def names(self, slots: Iterable[int]) -> tuple[str, ...]:
        """Objects that these slots stand for."""
        return tuple(map(self._ids.__getitem__, slots))

    def remove(self, object_ids: Sequence[str]) -> tuple[int, ...]:
        """Objects left; returns their slots, which no longer stand for anything."""
        gone = tuple(self.by_id.pop(object_id) for object_id in object_ids)
        for slot in gone:
            self._ids[slot] = ""
            self.present[slot] = False
        self._free.extend(reversed(gone))
        return gone

    def add(self, object_ids: Sequence[str]) -> None:
        """Objects came."""
        more, old = max(0, len(object_ids) - len(self._free)), len(self._ids)
        self._ids.extend([""] * more)
        # New slots are taken before used ones, in order: ties between objects then keep the catalogue's.
        self._free.extend(range(old + more - 1, old - 1, -1))
        self.present = np.concatenate([self.present, np.zeros(more, dtype=np.bool_)])
        for object_id in object_ids:
            slot = self._free.pop()
            self.by_id[object_id] = slot
            self._ids[slot] = object_id
            self.present[slot] = True


class DeviceHistories:
    """The last few different objects of each device. With one history for all, visitors would mix.

    Parameters
    ----------
    length : int
        Objects per history.
    devices_max : int
        Devices that are remembered; the one silent for longest makes room.
    pause_s : float
        After a silence of this length the history of a device begins anew.

    Raises
    ------
    InvalidArgument
        If a parameter is not positive.
    """

    def __init__(self, length: int, devices_max: int, pause_s: float = math.inf) -> None:
        if length < 1 or devices_max < 1 or not pause_s > 0:
            raise InvalidArgument(
                f"length, devices and pause must be above 0, got {length}, {devices_max} and {pause_s} s"
            )
        self._length = length
        self._devices_max = devices_max
        self._pause_s = pause_s
        self._last: OrderedDict[str, tuple[tuple[int, ...], float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def present(self, now_s: float, within_s: float, most: int) -> list[str]:
        """Of the ``most`` devices that were heard of last those of the last ``within_s`` seconds."""
        latest = itertools.islice(reversed(self._last.items()), most)
        return [device_id for device_id, (_, heard_s) in latest if now_s - heard_s <= within_s]

    def of(self, device_id: str, now_s: float) -> tuple[int, ...]:
        """The device's last objects, the latest last; empty if it is not known or was silent for long."""
        history, heard_s = self._last.get(device_id, ((), now_s))
        return history if now_s - heard_s < self._pause_s else ()

    def saw(self, device_id: str, slot: int, now_s: float) -> tuple[tuple[int, ...], int | None]:
        """Append an object, unless the device saw that last as well.

        Returns
        -------
        (tuple of int, int or None)
            The history from before; and what the device looked at last, however long ago.
        """
        seen, heard_s = self._last.get(device_id, ((), now_s))
        before = seen if now_s - heard_s < self._pause_s else ()
        after = before if before[-1:] == (slot,) else (*before, slot)[-self._length :]
        self._last[device_id] = (after, now_s)
        self._last.move_to_end(device_id)
        if len(self._last) > self._devices_max:
            self._last.popitem(last=False)
        return before, seen[-1] if seen else None

    def remove(self, slots: Iterable[int]) -> None:
        """Objects left the catalogue: histories begin anew after them."""
        gone = frozenset(slots)
        for device_id, (history, heard_s) in self._last.items():
            last_gone = max((at for at, slot in enumerate(history) if slot in gone), default=-1)
            if last_gone >= 0:
                self._last[device_id] = (history[last_gone + 1 :], heard_s)


class TransitionRow:
    """What followed one history, and how often: weights by slot.

    Two small arrays instead of a dictionary: a million transitions then take tens of megabytes rather than
    hundreds, and a row becomes probabilities without a loop.
    """

    __slots__ = ("_size", "_slots", "_weights")

    def __init__(self) -> None:
        self._slots = np.empty(_FIRST_CAPACITY, dtype=np.int32)
        self._weights = np.empty(_FIRST_CAPACITY, dtype=np.float64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def slots(self) -> NDArray[np.int32]:
        """Which objects followed: (len,) int32, in the order in which they first did."""
        return self._slots[: self._size]

    @property
    def weights(self) -> NDArray[np.float64]:
        """How often: (len,) float64, beside `slots`."""
        return self._weights[: self._size]

    def add(self, slot: int, weight: float) -> None:
        """Let one more transition lead to this slot."""
        found = np.flatnonzero(self.slots == slot)
        if len(found):
            self._weights[found[0]] += weight
            return
        if self._size == len(self._slots):
            # By half: doubling wastes more than a million short rows can afford.
            capacity = self._size + max(_FIRST_CAPACITY, self._size // 2)
            self._slots = np.resize(self._slots, capacity)
            self._weights = np.resize(self._weights, capacity)
        self._slots[self._size] = slot
        self._weights[self._size] = weight
        self._size += 1

    def weight_of(self, slot: int) -> float:
        """The weight of a slot; 0 if it never followed."""
        return float(self.weights[self.slots == slot].sum())

    def scale(self, factor: float) -> None:
        """Multiply all weights."""
        self._weights[: self._size] *= factor

    def keep(self, wanted: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Keep only the entries that are marked, (len,) bool; returns the slots that went."""
        gone = self.slots[~wanted].copy()
        if len(gone):
            kept_slots, kept_weights = self.slots[wanted], self.weights[wanted]
            self._slots, self._weights, self._size = kept_slots, kept_weights, len(kept_slots)
        return gone


class TransitionCounts:
    """Weights of transitions, in units of one seen at an origin of time: then decay touches no count.

    Parameters
    ----------
    half_life_s : float
        Seconds in which a count loses half of its weight.
    rows_max : int
        Histories with counts; the one unused for longest makes room.
    journal : bool
        Whether to note which counts changed, for `drain`.
    """

    def __init__(self, half_life_s: float, rows_max: int, *, journal: bool) -> None:
        self._half_life_s = half_life_s
        self._rows_max = rows_max
        self._origin_s = 0.0
        self.popularity = np.zeros(0)
        """Weight of each object whatever came before it: (S,) float64."""
        self.rows: OrderedDict[tuple[int, ...], TransitionRow] = OrderedDict()
        """What followed each history that is not empty, the one unused for longest first."""
        # A dictionary serves as an ordered set: what is written is the same in every run.
        self._touched: dict[Transition, None] | None = {} if journal else None

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def weight_of(self, transition: Transition) -> float:
        """The weight of one transition."""
        history, slot = transition
        if not history:
            return float(self.popularity[slot])
        row = self.rows.get(history)
        return row.weight_of(slot) if row is not None else 0.0

    def touch(self, transitions: Iterable[Transition]) -> None:
        """The counts of these transitions changed."""
        if self._touched is not None:
            self._touched.update(dict.fromkeys(transitions))

    def drain(self) -> list[Transition]:
        """The transitions whose counts changed since the last call."""
        touched = list(self._touched or ())
        if self._touched is not None:
            self._touched = {}
        return touched

    def resize(self, slots: int) -> None:
        """Make room for slots below this number."""
        more = max(0, slots - len(self.popularity))
        self.popularity = np.concatenate([self.popularity, np.zeros(more)])

    def add(self, transition: Transition, weight: float, *, stored: bool = False) -> None:
        """Count a transition; notes that, unless it is ``stored`` already, and what was forgotten for it."""
        history, slot = transition
        if self._touched is not None and not stored:
            self._touched[transition] = None
        if not history:
            self.popularity[slot] += weight
            return
        row = self.rows.get(history)
        if row is None:
            row = self.rows[history] = TransitionRow()
            if len(self.rows) > self._rows_max:
                old, old_row = self.rows.popitem(last=False)
                self.touch((old, followed) for followed in old_row.slots.tolist())
        else:
            self.rows.move_to_end(history)
        row.add(slot, weight)

    def remove(self, gone: Sequence[int], present: NDArray[np.bool_]) -> None:
        """Slots stand for nothing any more; ``present``, (S,) bool, tells which still do."""
        self.popularity[list(gone)] = 0.0
        left = frozenset(gone)
        if self._touched:
            self._touched = {
                (history, slot): None
                for history, slot in self._touched
                if slot not in left and left.isdisjoint(history)
            }
        for history in [history for history in self.rows if not left.isdisjoint(history)]:
            del self.rows[history]
        for row in self.rows.values():
            row.keep(present[row.slots])
        self._drop_empty_rows()

    def weight_at(self, now_s: float) -> float:
        """Weight of a transition seen now.

        Every 64 half-lives the counts are brought to a new origin, and those that decayed to nothing are
        forgotten: the weight of now must stay finite.
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
            row.scale(factor)
            gone = row.keep(row.weights >= NEGLIGIBLE)
            self.touch((history, slot) for slot in gone.tolist())
        self._drop_empty_rows()

    def _drop_empty_rows(self) -> None:
        for history in [history for history, row in self.rows.items() if not len(row)]:
            del self.rows[history]
