"""Models that are here although they answer nothing now: for devices that ask, and for the next snapshot."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from nearsight.common.recognition.models import ObjectModel


class ModelLibrary:
    """Models by object, the least recently used leave first; for all threads of the daemon.

    Parameters
    ----------
    max_bytes : int
        Features that are held at most, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._models: OrderedDict[str, ObjectModel] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._models)

    @property
    def size_bytes(self) -> int:
        """Bytes of all models."""
        return self._size_bytes

    def put(self, models: Iterable[ObjectModel]) -> None:
        """Keep these models, in place of other versions."""
        with self._lock:
            for model in models:
                self._drop(model.object_id)
                self._models[model.object_id] = model
                self._size_bytes += model.size_bytes
            while self._size_bytes > self._max_bytes:
                self._drop(next(iter(self._models)))

    def get(self, object_id: str) -> ObjectModel | None:
        """The model of an object, of whatever version; None if it is not here."""
        with self._lock:
            if object_id in self._models:
                self._models.move_to_end(object_id)
            return self._models.get(object_id)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Drop what is not in the catalogue any more, and other versions."""
        with self._lock:
            for object_id, model in list(self._models.items()):
                if versions.get(object_id) != model.version:
                    self._drop(object_id)

    def _drop(self, object_id: str) -> None:
        model = self._models.pop(object_id, None)
        if model is not None:
            self._size_bytes -= model.size_bytes
