"""All catalogues of one cloud: loaded at start, created on first use, synchronised with the database file.

Other processes may write to the file while the cloud runs (`nearsight cloud ingest --database`). SQLite's
``PRAGMA data_version`` detects this at almost no cost. It is polled, and changed catalogues are loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from nearsight.common.background.progress import Progress, at_intervals
from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.store import LOCAL_AUTHOR, Author, CatalogueStore, PutOutcome
from nearsight.common.catalogue.training import (
    TrainedObject,
    check_catalogue_limit,
    check_catalogue_name,
    choose_catalogue,
)
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError, NotFound, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.recognition.settings import RecognitionSettings


class Catalogues:
    """The catalogues in service, by name.

    Parameters
    ----------
    store : CatalogueStore
        The database, open.
    settings : RecognitionSettings
        Settings of the indexes.
    poll_interval_s : float
        Interval of polling for changes by other processes.
    """

    def __init__(
        self,
        store: CatalogueStore,
        settings: RecognitionSettings,
        *,
        poll_interval_s: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.store = store
        self._settings = settings
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._log = get_logger("catalogues")
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        """Held while a catalogue is created or removed, so that the catalogues in service match the store."""
        self._by_name: dict[str, LiveCatalogue] = {}
        self.by_name: Mapping[str, LiveCatalogue] = MappingProxyType(self._by_name)
        """The catalogues in service."""
        self.loading = "not begun"
        """Progress of loading, such as "120 of 500 objects"; empty when every catalogue is in service."""
        self.problem = store.read_only
        """Why changes are refused, or why other processes' changes are not loaded; empty if all is well."""
        self._seen_version = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="database-watch", daemon=True)

    def check_loaded(self) -> None:
        """Raise `Unavailable` while catalogues are loading, so that none of them seems to be removed."""
        if self.loading:
            raise Unavailable(
                f"the cloud is still loading its catalogues: {self.loading}", advice="try again in a moment"
            )

    def load(self) -> None:
        """Load every catalogue of the database, without training, and start to watch the file.

        Raises
        ------
        CorruptStore
            If the database is damaged.
        """
        self._seen_version = self.store.data_version()
        catalogues = self.store.catalogues()
        total, before = sum(info.objects for info in catalogues), 0
        for info in catalogues:
            if self._stop.is_set():
                return
            try:
                self._add(info.name, self._note_progress(before, total))
            except NotFound:
                self._log.info("another process removed a catalogue", catalogue=info.name)
            before += info.objects
        self.loading = ""
        self._watcher.start()

    def stop(self) -> None:
        """Stop watching the file and building indexes. The store stays open."""
        self._stop.set()
        if self._watcher.is_alive():
            self._watcher.join(10.0)
        for catalogue in self.all():
            catalogue.stop()

    def all(self) -> tuple[LiveCatalogue, ...]:
        """The catalogues in service, sorted by name."""
        with self._lock:
            return tuple(self._by_name[name] for name in sorted(self._by_name))

    def get(self, name: str) -> LiveCatalogue:
        """The catalogue called ``name``; if ``name`` is empty, the only catalogue.

        Raises
        ------
        NotFound, InvalidArgument
            As in `choose_catalogue`.
        Unavailable
            If the catalogue is not loaded yet.
        """
        with self._lock:
            known = dict(self._by_name)
        if name in known:
            return known[name]
        self.check_loaded()
        return known[choose_catalogue(name, known)]

    def check_name(self, name: str) -> None:
        """Raise an error if `put` could neither find nor create a catalogue of this name.

        Raises
        ------
        InvalidArgument
            If the name is invalid, or empty although there are several catalogues, or their limit is reached.
        NotFound
            If the name is empty and there is no catalogue.
        Unavailable
            If the catalogues are not loaded yet.
        """
        if not name or self.loading:
            self.get(name)
            return
        check_catalogue_name(name)
        known = self.all()
        if name not in {catalogue.name for catalogue in known}:
            check_catalogue_limit(len(known), self.store.max_catalogues)

    def put(
        self,
        name: str,
        objects: Sequence[TrainedObject],
        by: Author = LOCAL_AUTHOR,
        *,
        allow_similar: bool = False,
    ) -> tuple[PutOutcome, LiveCatalogue]:
        """Store objects in a catalogue, which is created if it does not exist; see `LiveCatalogue.put`.

        Raises
        ------
        InvalidArgument, NotFound, Unavailable
            As in `check_name`; `Unavailable` also if the catalogue is removed in the meantime.
        """
        self.check_name(name)
        with self._changing:
            name = name or self.get("").name
            live = self._by_name.get(name)
            if live is None:
                live = self._add(name)
                try:
                    return live.put(objects, by, allow_similar=allow_similar), live
                except BaseException:
                    self._drop(name)
                    raise
        return live.put(objects, by, allow_similar=allow_similar), live

    def remove(self, name: str, by: Author = LOCAL_AUTHOR) -> int:
        """Remove a catalogue and all its objects, first from the store; return the number of objects.

        Raises
        ------
        NotFound
            If the catalogue does not exist.
        Unavailable
            If the catalogues are not loaded yet.
        """
        self.check_loaded()
        with self._changing:
            objects = self.store.remove_catalogue(name, by)
            self._drop(name)
        return objects

    def _drop(self, name: str) -> None:
        with self._lock:
            catalogue = self._by_name.pop(name, None)
        if catalogue is not None:
            catalogue.stop(0.0)  # do not wait: its builder may be busy, and ends by itself

    def _add(self, name: str, progress: Progress | None = None) -> LiveCatalogue:
        catalogue = LiveCatalogue(name, self.store, self._settings, clock=self._clock)
        if progress is not None:
            catalogue.load(progress)
        else:
            catalogue.start()
        with self._lock:
            self._by_name[name] = catalogue
        return catalogue

    def _note_progress(self, before: int, total: int) -> Progress:
        """Progress callback while a catalogue loads after ``before`` objects; sets `loading` and logs."""
        log = at_intervals(lambda done, of: self._log.info("loading", objects=done, of=of), self._clock)

        def note(done: int, _: int) -> None:
            self.loading = f"{before + done} of {total} objects"
            log(before + done, total)

        note(0, 0)
        return note

    def _watch(self) -> None:
        while not self._stop.wait(self._poll_interval_s):
            try:
                self._take_over_changes()
                self.store.check_writable()
            except NearsightError as error:
                if str(error) != self.problem:
                    self._log.error("trouble with the database", error=str(error))
                self.problem = str(error)
            else:
                self.problem = ""

    def _take_over_changes(self) -> None:
        version = self.store.data_version()
        if version == self._seen_version:
            return
        with self._changing:
            stored = self.store.catalogues()
            for name in {catalogue.name for catalogue in self.all()} - {info.name for info in stored}:
                self._drop(name)
                self._log.info("another process removed a catalogue", catalogue=name)
            for info in stored:
                catalogue = self._by_name.get(info.name) or self._add(info.name)
                if catalogue.content.revision < info.revision:
                    catalogue.refresh()
                    self._log.info(
                        "another process changed a catalogue", catalogue=info.name, revision=info.revision
                    )
        self._seen_version = version  # at the end, so that a failed update is retried
