"""The device's cache: an immutable snapshot that is replaced as a whole; the last few are kept (4.7).

A request reads the snapshot once and uses it to its end, with the number of features that belongs to it.
Snapshots are built in the background thread; requests are affected only by the swap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings

Contents = frozenset[tuple[str, int]]
"""Object ids with the versions of their models."""

Build = Callable[[Sequence[ObjectModel], RecognitionSettings], ObjectRecognizer]
"""Builds a recognizer from models."""

_BUILD_SHARE = 0.25
"""Maximum share of the background thread's time for building snapshots."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalSnapshot:
    """The models with which the device recognises objects itself, and the number of features."""

    recognizer: ObjectRecognizer
    """May be empty: then no photo is looked up."""
    query_features: int
    """Number of features to extract from a photo for a lookup."""

    def __len__(self) -> int:
        return len(self.recognizer)

    @property
    def names(self) -> frozenset[str]:
        """The objects of its models."""
        return frozenset(self.recognizer.models)

    @property
    def contents(self) -> Contents:
        """The objects and versions of its models."""
        return frozenset((name, model.version) for name, model in self.recognizer.models.items())


class Snapshots:
    """Holds the current snapshot, builds the next ones, and keeps the last few by current object (4.7.2).

    A user who compares two exhibits alternates between them; their snapshots need not be built again.

    Parameters
    ----------
    first : LocalSnapshot
        The first snapshot.
    capacity : int
        Maximum number of kept snapshots.
    recognition : RecognitionSettings
        Settings of the recognition pipeline.
    clock : Clock
        Measures build times.
    build : callable
        Builds a recognizer; the simulation passes another one.
    """

    def __init__(
        self,
        first: LocalSnapshot,
        capacity: int,
        recognition: RecognitionSettings,
        clock: Clock,
        build: Build = ObjectRecognizer.build,
    ) -> None:
        self.current = first
        """The current snapshot; only `swap` assigns it. The assignment is atomic, so requests read it without
        a lock."""
        self._recognition = recognition
        self._clock = clock
        self._build = build
        self._capacity = capacity
        self._kept: OrderedDict[str, LocalSnapshot] = OrderedDict()
        self._next_build_s = clock.monotonic()

    @property
    def models(self) -> tuple[ObjectModel, ...]:
        """The models of the current snapshot and of the kept ones; most are in several of them."""
        return tuple(
            model
            for snapshot in (self.current, *self._kept.values())
            for model in snapshot.recognizer.models.values()
        )

    def swap(self, snapshot: LocalSnapshot) -> None:
        """Answer from this snapshot from now on."""
        self.current = snapshot

    def reuse(self, current: str) -> None:
        """Swap in the kept snapshot of an object that the device returns to, if there is one."""
        if current in self._kept:
            self._kept.move_to_end(current)
            self.swap(self._kept[current])

    def serve(self, current: str, models: Sequence[ObjectModel], query_features: int) -> float:
        """Answer with these models from now on.

        Returns
        -------
        float
            0, or the seconds after which to call again: builds must leave time for other jobs.
        """
        wanted = frozenset((model.object_id, model.version) for model in models)
        for known in (self.current, self._kept.get(current)):
            if known is not None and known.contents == wanted and known.query_features == query_features:
                self.swap(known)
                return 0.0
        started_s = self._clock.monotonic()
        if models and started_s < self._next_build_s:
            return self._next_build_s - started_s
        snapshot = LocalSnapshot(self._build(models, self._recognition), query_features)
        finished_s = self._clock.monotonic()
        self._next_build_s = finished_s + (finished_s - started_s) * (1 / _BUILD_SHARE - 1)
        if models:
            self._kept[current] = snapshot
            self._kept.move_to_end(current)
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        self.swap(snapshot)
        return 0.0

    def forget(self, object_ids: Set[str]) -> None:
        """Drop kept snapshots with these objects; the current snapshot continues to answer."""
        for current, snapshot in [*self._kept.items()]:
            if not snapshot.names.isdisjoint(object_ids):
                del self._kept[current]

    def remove(self, object_ids: Set[str]) -> None:
        """Drop kept snapshots with these objects, and build the current one again without them."""
        self.forget(object_ids)
        answering = self.current
        if answering.names.isdisjoint(object_ids):
            return
        left = [model for name, model in answering.recognizer.models.items() if name not in object_ids]
        self.swap(LocalSnapshot(self._build(left, self._recognition), answering.query_features))
