"""One way to work on a catalogue from outside the daemon, be it in a database file or in a running cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nearsight.cloud.store import CatalogueInfo, RemoveOutcome, StoredObject
from nearsight.cloud.training import NewObject, Rejection, SkippedImage


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of some objects; ids in ``added``, ``replaced`` and ``unchanged``."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    skipped: tuple[SkippedImage, ...] = ()


class CatalogueAccess(Protocol):
    """A catalogue, wherever it is."""

    def catalogues(self) -> tuple[CatalogueInfo, ...]:
        """All catalogues that are in the same place."""

    def objects(self) -> tuple[StoredObject, ...]:
        """What is in the catalogue."""

    def stored(self) -> Mapping[str, str]:
        """Content hash by id of what need not be sent again; empty if there is no such catalogue yet."""

    def put(self, objects: Sequence[NewObject]) -> BatchOutcome:
        """Train and store; durable on return. May be called from several threads."""

    def finish(self) -> None:
        """Return when everything that was put is in service; for the end of a series."""

    def remove(self, object_ids: Sequence[str]) -> RemoveOutcome:
        """Remove objects."""
