"""The models of a standby, apart from those that the cache keeps; for all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from nearsight.common.recognition.models import ObjectModel


class StandbyModels:
    """Models by object, and which are wanted.

    Attributes
    ----------
    changed : callable
        Called, in any thread, after models came or could not be had.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, ObjectModel] = {}
        self._wanted: frozenset[str] = frozenset()
        self._failed: set[str] = set()
        self.changed: Callable[[], None] = lambda: None

    def get(self, object_id: str) -> ObjectModel | None:
        """The model of an object, of whatever version; None if it is not here."""
        return self._models.get(object_id)

    def all(self) -> Mapping[str, ObjectModel]:
        """All of them, as of now."""
        with self._lock:
            return dict(self._models)

    def put(self, models: Iterable[ObjectModel]) -> None:
        """Keep these, in place of other versions."""
        with self._lock:
            self._models.update((model.object_id, model) for model in models)

    def remove(self, object_ids: Iterable[str]) -> None:
        """Keep these no longer."""
        with self._lock:
            for name in object_ids:
                self._models.pop(name, None)

    def want(self, object_ids: Collection[str]) -> None:
        """From now on these are on their way, and no others."""
        with self._lock:
            self._wanted, self._failed = frozenset(object_ids), set()

    def offer(self, models: Iterable[ObjectModel]) -> frozenset[str]:
        """Keep those that are wanted, which came; returns which."""
        with self._lock:
            taken = {model.object_id: model for model in models if model.object_id in self._wanted}
            self._models.update(taken)
        if taken:
            self.changed()
        return frozenset(taken)

    def failed(self, object_ids: Collection[str]) -> None:
        """These did not come."""
        with self._lock:
            self._failed |= self._wanted.intersection(object_ids)
            failed = bool(self._failed)
        if failed:
            self.changed()

    def wants_any(self) -> bool:
        """Whether something was wanted last."""
        return bool(self._wanted)

    def on_their_way(self) -> frozenset[str]:
        """Wanted, and neither here nor failed."""
        with self._lock:
            return self._wanted - self._failed - self._models.keys()

    def not_to_be_had(self) -> frozenset[str]:
        """Wanted, and failed."""
        with self._lock:
            return frozenset(self._failed)
