"""The last few cached models, ready to be used again (dissertation, section 4.7.2).

Somebody who compares two exhibits goes back and forth between them; their snapshots need no new building.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from nearsight.common.errors import InvalidArgument

T = TypeVar("T")


class SnapshotLru(Generic[T]):
    """Snapshots by the object that was looked at; the one unused for longest goes.

    Parameters
    ----------
    capacity : int
        4 in the dissertation.

    Raises
    ------
    InvalidArgument
        If there is no room for any.
    """

    def __init__(self, capacity: int = 4) -> None:
        if capacity < 1:
            raise InvalidArgument(f"there must be room for a snapshot, got {capacity}")
        self._capacity = capacity
        self._snapshots: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._snapshots)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._snapshots

    def get(self, object_id: str) -> T | None:
        """The snapshot for this object, which is used now; None if there is none."""
        snapshot = self._snapshots.get(object_id)
        if snapshot is not None:
            self._snapshots.move_to_end(object_id)
        return snapshot

    def put(self, object_id: str, snapshot: T) -> None:
        """Keep a snapshot, instead of an older one for the same object."""
        self._snapshots[object_id] = snapshot
        self._snapshots.move_to_end(object_id)
        if len(self._snapshots) > self._capacity:
            self._snapshots.popitem(last=False)

    def drop(self, outdated: Callable[[T], bool]) -> int:
        """Forget snapshots, such as those with an object that left the catalogue; returns how many."""
        gone = [object_id for object_id, snapshot in self._snapshots.items() if outdated(snapshot)]
        for object_id in gone:
            del self._snapshots[object_id]
        return len(gone)
