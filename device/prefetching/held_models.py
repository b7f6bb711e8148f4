"""The object models that a device keeps in bounded memory, and counters of their use.

The background thread changes them. Other threads may read them, e.g. to send a model to a device nearby.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from nearsight.common.recognition.models import ObjectModel


@dataclass(slots=True)
class PrefetchAccount:
    """Counters of fetched models."""

    fetched_models: int = 0
    fetched_bytes: int = 0
    """Models that arrived, and their size on the network."""
    wasted_models: int = 0
    wasted_bytes: int = 0
    """Fetched models that were dropped before they recognised anything."""


class HeldModelsObserver(Protocol):
    """Receives added and dropped models, in the background thread."""

    def added(self, model: ObjectModel) -> None:
        """This model was added."""

    def dropped(self, model: ObjectModel) -> None:
        """This model was dropped."""


@dataclass(slots=True)
class _Held:
    model: ObjectModel
    wire_bytes: int
    used: bool = False


class HeldModels:
    """Object models by object; the least recently used are evicted above the limit of bytes. Thread-safe.

    Parameters
    ----------
    limit_bytes : int
        Maximum total size of the models.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self.size_bytes = 0
        """Total size of the models."""
        self._account = PrefetchAccount()
        self.observer: HeldModelsObserver | None = None
        """Receives added and dropped models."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._held

    @property
    def mean_bytes(self) -> float:
        """Mean size of a model; 0 if there is none."""
        with self._lock:
            return self.size_bytes / len(self._held) if self._held else 0.0

    @property
    def unused(self) -> int:
        """Number of models that have recognised nothing so far."""
        with self._lock:
            return sum(not held.used for held in self._held.values())

    @property
    def account(self) -> PrefetchAccount:
        """A copy of the counters of fetched and wasted models."""
        with self._lock:
            return replace(self._account)

    @property
    def models(self) -> tuple[ObjectModel, ...]:
        """All models, the least recently used first."""
        with self._lock:
            return tuple(held.model for held in self._held.values())

    def versions(self) -> Mapping[str, int]:
        """Object id → version of the model."""
        with self._lock:
            return {object_id: held.model.version for object_id, held in self._held.items()}

    def get(self, object_id: str) -> ObjectModel | None:
        """The model, marked as recently used; None if it is not in memory."""
        with self._lock:
            held = self._held.get(object_id)
            if held is None:
                return None
            self._held.move_to_end(object_id)
            return held.model

    def peek(self, object_id: str) -> ObjectModel | None:
        """The model, without marking it; None if it is not in memory."""
        with self._lock:
            held = self._held.get(object_id)
            return held.model if held is not None else None

    def used(self, object_id: str) -> ObjectModel | None:
        """Mark that the object was recognised; returns its model, None if it is not in memory."""
        with self._lock:
            held = self._held.get(object_id)
            if held is None:
                return None
            held.used = True
            return held.model

    def put(self, model: ObjectModel, wire_bytes: int) -> frozenset[str]:
        """Add a model; returns the objects whose models were evicted, including itself if it is too large."""
        name = model.object_id
        with self._lock:
            self._account.fetched_models += 1
            self._account.fetched_bytes += wire_bytes
            known = self._held.get(name)
            left = self._remove([name])
            self._held[name] = _Held(model, wire_bytes, known is not None and known.used)
            self.size_bytes += model.size_bytes
            if model.size_bytes > self._limit_bytes:
                self._remove([name])
            while self.size_bytes > self._limit_bytes:
                left += self._remove([next(iter(self._held))])
            stays = name in self._held
        self._notify_dropped(left)
        if stays and self.observer is not None:
            self.observer.added(model)
        gone = {old.object_id for old in left} - {name}
        return frozenset(gone if stays else gone | {name})

    def remove(self, object_ids: Collection[str]) -> None:
        """Drop models."""
        with self._lock:
            left = self._remove(object_ids)
        self._notify_dropped(left)

    def _remove(self, object_ids: Collection[str]) -> list[ObjectModel]:
        left = []
        for held in [self._held.pop(name) for name in object_ids if name in self._held]:
            self.size_bytes -= held.model.size_bytes
            if not held.used:
                self._account.wasted_models += 1
                self._account.wasted_bytes += held.wire_bytes
            left.append(held.model)
        return left

    def _notify_dropped(self, left: Collection[ObjectModel]) -> None:
        if self.observer is not None:
            for model in left:
                self.observer.dropped(model)
