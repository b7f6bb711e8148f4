"""Objects as small numbers: what array-based models index by. Numbers of removed objects are used again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


class ObjectSlots:
    """A changing catalogue's objects and their slots."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._free: list[int] = []
        self._present = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._slots

    @property
    def by_id(self) -> Mapping[str, int]:
        """The slot of each object."""
        return self._slots

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which slots stand for an object: (S,) bool; S never shrinks."""
        return self._present

    def of(self, object_ids: Iterable[str]) -> tuple[int, ...] | None:
        """Slots of these objects; None if one of them is not in the catalogue."""
        slots = [self._slots.get(object_id) for object_id in object_ids]
        known = tuple(slot for slot in slots if slot is not None)
        return known if len(known) == len(slots) else None

    def names(self, slots: Iterable[int]) -> tuple[str, ...]:
        """Objects that these slots stand for."""
        return tuple(name for slot in slots if (name := self._ids[slot]) is not None)

    def remove(self, object_ids: Sequence[str]) -> tuple[int, ...]:
        """Objects left; returns their slots, which no longer stand for anything."""
        gone = tuple(self._slots.pop(object_id) for object_id in object_ids)
        for slot in gone:
            self._ids[slot] = None
            self._present[slot] = False
        self._free.extend(reversed(gone))
        return gone

    def add(self, object_ids: Sequence[str]) -> None:
        """Objects came."""
        self._grow(len(object_ids) - len(self._free))
        for object_id in object_ids:
            slot = self._free.pop()
            self._slots[object_id] = slot
            self._ids[slot] = object_id
            self._present[slot] = True

    def _grow(self, more: int) -> None:
        if more <= 0:
            return
        old = len(self._ids)
        self._ids.extend([None] * more)
        # New slots are taken before used ones, in order: ties between objects then keep the catalogue's.
        self._free.extend(range(old + more - 1, old - 1, -1))
        self._present = np.concatenate([self._present, np.zeros(more, dtype=np.bool_)])
