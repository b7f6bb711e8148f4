"""The object models that a device keeps, in bounded memory, and what became of those that it fetched."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nearsight.common.recognition.models import ObjectModel


@dataclass(frozen=True, slots=True)
class PrefetchAccount:
    """Models fetched so far.

    Attributes
    ----------
    fetched_models, fetched_bytes : int
        That came, and their size on the network.
    wasted_models, wasted_bytes : int
        Of these, what left without having recognised anything.
    """

    fetched_models: int = 0
    fetched_bytes: int = 0
    wasted_models: int = 0
    wasted_bytes: int = 0


@dataclass(slots=True)
class _Held:
    model: ObjectModel
    wire_bytes: int
    used: bool = False


class HeldModels:
    """Models by object; those unused for longest leave when there are too many bytes.

    Parameters
    ----------
    limit_bytes : int
        Most bytes of all models together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._size_bytes = 0
        self._account = PrefetchAccount()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._held

    @property
    def size_bytes(self) -> int:
        """Of all models that are held."""
        return self._size_bytes

    @property
    def mean_bytes(self) -> float:
        """Of one model; 0 if there is none."""
        return self._size_bytes / len(self._held) if self._held else 0.0

    @property
    def account(self) -> PrefetchAccount:
        """What was fetched, and what of it was of no use."""
        return self._account

    def versions(self) -> Mapping[str, int]:
        """Object id → version of the model."""
        return {object_id: held.model.version for object_id, held in self._held.items()}

    def version(self, object_id: str) -> int | None:
        """Version of one object's model; None if it is not here."""
        held = self._held.get(object_id)
        return held.model.version if held is not None else None

    def get(self, object_id: str) -> ObjectModel | None:
        """The model, which counts as wanted now; None if it is not here."""
        held = self._held.get(object_id)
        if held is None:
            return None
        self._held.move_to_end(object_id)
        return held.model

    def used(self, object_id: str) -> None:
        """The model recognised its object."""
        held = self._held.get(object_id)
        if held is not None:
            held.used = True

    def put(self, model: ObjectModel, wire_bytes: int) -> frozenset[str]:
        """Keep a model; returns the objects whose models had to leave for it, itself if it is too large."""
        self._count(fetched_models=1, fetched_bytes=wire_bytes)
        known = self._held.get(model.object_id)
        self.remove([model.object_id])
        self._held[model.object_id] = _Held(model, wire_bytes, known is not None and known.used)
        self._size_bytes += model.size_bytes
        if model.size_bytes > self._limit_bytes:
            self.remove([model.object_id])
            return frozenset([model.object_id])
        gone = set()
        while self._size_bytes > self._limit_bytes:
            oldest = next(iter(self._held))
            gone.add(oldest)
            self.remove([oldest])
        return frozenset(gone)

    def remove(self, object_ids: Collection[str]) -> None:
        """Let models go."""
        for object_id in object_ids:
            held = self._held.pop(object_id, None)
            if held is None:
                continue
            self._size_bytes -= held.model.size_bytes
            if not held.used:
                self._count(wasted_models=1, wasted_bytes=held.wire_bytes)

    def _count(
        self,
        fetched_models: int = 0,
        fetched_bytes: int = 0,
        wasted_models: int = 0,
        wasted_bytes: int = 0,
    ) -> None:
        before = self._account
        self._account = PrefetchAccount(
            before.fetched_models + fetched_models,
            before.fetched_bytes + fetched_bytes,
            before.wasted_models + wasted_models,
            before.wasted_bytes + wasted_bytes,
        )
