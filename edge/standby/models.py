"""The models of a standby, separate from those of the cache; thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from nearsight.common.recognition.models import ObjectModel


class StandbyModels:
    """Models by object, and the set of objects that are being fetched.

    Attributes
    ----------
    changed : callable
        Called in any thread, after models arrived or their fetch failed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, ObjectModel] = {}
        self._wanted: frozenset[str] = frozenset()
        self._failed: set[str] = set()
        self.changed: Callable[[], None] = lambda: None

    def get(self, object_id: str) -> ObjectModel | None:
        """The model of an object, of any version; None if there is none."""
        return self._models.get(object_id)

    def all(self) -> Mapping[str, ObjectModel]:
        """A copy of the present models."""
        with self._lock:
            return dict(self._models)

    def put(self, models: Iterable[ObjectModel]) -> None:
        """Store models; they replace other versions."""
        with self._lock:
            self._models.update((model.object_id, model) for model in models)

    def remove(self, object_ids: Iterable[str]) -> None:
        """Remove models."""
        with self._lock:
            for name in object_ids:
                self._models.pop(name, None)

    def want(self, object_ids: Collection[str]) -> None:
        """Set the objects that are being fetched."""
        with self._lock:
            self._wanted, self._failed = frozenset(object_ids), set()

    def offer(self, models: Iterable[ObjectModel]) -> frozenset[str]:
        """Store those of the arrived models that are being fetched; return their ids."""
        with self._lock:
            taken = {model.object_id: model for model in models if model.object_id in self._wanted}
            self._models.update(taken)
        if taken:
            self.changed()
        return frozenset(taken)

    def failed(self, object_ids: Collection[str]) -> None:
        """Record that fetches failed."""
        with self._lock:
            self._failed |= self._wanted.intersection(object_ids)
            failed = bool(self._failed)
        if failed:
            self.changed()

    def wants_any(self) -> bool:
        """Whether the last call of `want` had objects."""
        return bool(self._wanted)

    def in_flight(self) -> frozenset[str]:
        """Objects that are being fetched, without arrived and failed ones."""
        with self._lock:
            return self._wanted - self._failed - self._models.keys()

    def failed_ids(self) -> frozenset[str]:
        """Objects whose fetch failed."""
        with self._lock:
            return frozenset(self._failed)
