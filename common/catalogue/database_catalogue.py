"""A catalogue in a database file, used by the command line and programs without a daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.store import (
    CatalogueInfo,
    CatalogueStore,
    PutOutcome,
    RemoveOutcome,
    StoredObject,
)
from nearsight.common.catalogue.training import (
    NewObject,
    check_catalogue_name,
    choose_catalogue,
    train_objects,
    training_fingerprint,
)
from nearsight.common.errors import NotFound
from nearsight.common.recognition.settings import RecognitionSettings


class DatabaseCatalogue:
    """A catalogue in a database file. Objects are trained in this process. Must be closed.

    A daemon that serves the same file notices changes within about a second.

    Parameters
    ----------
    store : CatalogueStore
        The open file; the caller closes it.
    catalogue : str
        Name of the catalogue; empty for the only one in the file.
    settings : RecognitionSettings
        Settings of the training and of the index.
    """

    def __init__(self, store: CatalogueStore, catalogue: str, settings: RecognitionSettings) -> None:
        self._store = store
        self._settings = settings
        self._given_name = catalogue
        self._opening = threading.Lock()
        self._live: LiveCatalogue | None = None

    @property
    def name(self) -> str:
        """Name of the catalogue.

        Raises
        ------
        InvalidArgument, NotFound
            If the name is not valid, or as `choose_catalogue` if none was given.
        """
        if self._given_name:
            return check_catalogue_name(self._given_name)
        return choose_catalogue("", [info.name for info in self._store.catalogues()])

    def catalogues(self) -> tuple[CatalogueInfo, ...]:
        """All catalogues of the file."""
        return self._store.catalogues()

    def objects(self) -> tuple[StoredObject, ...]:
        """Summaries of the catalogue's objects."""
        return self._store.objects(self.name)

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        """Train objects, compare them with the catalogue and store them; durable on return. Thread-safe."""
        training = train_objects(objects, self._settings)
        outcome = PutOutcome()
        if training.trained:
            outcome = self._loaded().put(training.trained, allow_similar=allow_similar)
        return replace(outcome, rejected=training.rejected + outcome.rejected, skipped=training.skipped)

    def _loaded(self) -> LiveCatalogue:
        """The catalogue with its index, loaded at the first call; new objects are compared with it."""
        with self._opening:
            if self._live is None:
                live = LiveCatalogue(self.name, self._store, self._settings)
                try:
                    live.load()
                except NotFound:  # a new catalogue
                    live.start()
                self._live = live
            return self._live

    def live(self) -> LiveCatalogue:
        """The catalogue in service, with all current contents of the file in its index.

        Raises
        ------
        NotFound
            If there is no such catalogue.
        """
        live = self._loaded()
        live.refresh()
        live.when_current(live.content.revision).result()
        return live

    def close(self) -> None:
        """Stop the index; the file stays open."""
        if self._live is not None:
            self._live.stop()

    def remove(self, object_ids: Sequence[str]) -> RemoveOutcome:
        """Remove objects from the catalogue."""
        return self._store.remove(self.name, object_ids)

    def remove_catalogue(self) -> int:
        """Remove the catalogue, whose name must have been given; returns the number of its objects."""
        return self._store.remove_catalogue(self._given_name)

    def stored(self) -> Mapping[str, str]:
        """Content hashes by id of objects that need no training; empty if the catalogue does not exist."""
        name, current = self.name, training_fingerprint(self._settings)
        try:
            objects = self._store.objects(name)
        except NotFound:
            return {}
        damaged = self._store.damaged(name)
        return {
            item.object_id: item.content_hash
            for item in objects
            if item.training == current and item.object_id not in damaged
        }

    def finish(self) -> None:
        """Do nothing: stored objects are already durable."""
