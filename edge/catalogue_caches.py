"""The caches of all catalogues: created on first use, synchronised with the cloud, limited in number.

A cache is created after the cloud answered a request about its catalogue, and only if the cloud can list
the objects. Therefore invented names cost the edge nothing, and the first requests of a catalogue do not
wait.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from nearsight.common.background.futures import completed, failed, pending
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing, listing_of
from nearsight.common.catalogue.training import choose_catalogue
from nearsight.common.errors import NearsightError, NotFound, Overloaded, Unavailable
from nearsight.common.logging import get_logger
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.cloud_client import catalogues_of, when_done
from nearsight.edge.profiler import Measured
from nearsight.edge.services import CLOUD, EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.state_store import Changes, StateStore
from nearsight.protos.catalogue_pb2 import CatalogueSummary

_NOT_ASKED = "not asked yet"
_POLL_LOST_CLOUD_S = 1.0
_POLL_TIMEOUT_S = 5.0
_QUIET_ROUNDS = 30
"""After this number of rounds without changes, a round writes anyway, to record the time of operation."""


class CatalogueCaches:
    """Finds, creates and removes the caches.

    Parameters
    ----------
    settings : EdgeSettings
        Settings of the daemon.
    services : EdgeServices
        Objects that all caches share.
    """

    def __init__(self, settings: EdgeSettings, services: EdgeServices) -> None:
        self._settings = settings
        self.services = services
        self._log = get_logger("caches")
        self._lock = threading.Lock()
        self._caches: dict[str, CatalogueCache] = {}  # least recently used first
        self._admitting: dict[str, Future[CatalogueCache]] = {}
        self.cloud_problem = _NOT_ASKED
        """Why the cloud is unreachable; empty if it answered the last poll."""
        self.listed: Mapping[str, CatalogueSummary] = {}
        """Catalogues of the cloud at the last successful poll, by name."""
        self._lost_at_s = math.nan
        # Listings from before a restart or an outage; the cloud may have other catalogues of these names now.
        self._unconfirmed: dict[str, Listing] = {}
        self._journal = (
            Journal(services.store, self.all, services.background, settings.state_every_s)
            if services.store is not None
            else None
        )
        # Catalogues of an earlier run, until their caches are created.
        self._stored_names: tuple[str, ...] = (
            services.store.catalogues() if services.store is not None else ()
        )

    def start(self) -> None:
        """Start polling the cloud."""
        self.services.background.submit(self._poll, name="poll")
        if self._journal is not None:
            self._journal.start()

    def save(self) -> None:
        """Write the learnt state at the end, after the background thread has stopped."""
        if self._journal is not None:
            self._journal.write(self.all())

    @property
    def journal_problem(self) -> str:
        """Why the learnt state cannot be written; empty if all is well, or without a store."""
        return self._journal.problem if self._journal is not None else ""

    @property
    def cloud_lost(self) -> bool:
        """Whether the cloud failed to answer the last poll."""
        return self.cloud_problem not in ("", _NOT_ASKED)

    @property
    def cloud_outage_s(self) -> float | None:
        """Duration of the outage of the cloud [s]; None if the cloud answered the last poll."""
        return self.services.clock.monotonic() - self._lost_at_s if self.cloud_lost else None

    def all(self) -> tuple[CatalogueCache, ...]:
        """All caches, least recently used first."""
        with self._lock:
            return tuple(self._caches.values())

    def get(self, catalogue: str) -> CatalogueCache | None:
        """The cache of a catalogue, or of the only one if no name is given; None if it has no cache yet."""
        try:
            catalogue = catalogue or self._only_catalogue()
        except NearsightError:
            return None
        with self._lock:
            cache = self._caches.pop(catalogue, None)
            if cache is not None:
                self._caches[catalogue] = cache
            return cache

    def admit(self, catalogue: str) -> Future[CatalogueCache]:
        """Create the cache of a catalogue, in the background; fails if the cloud does not list it.

        Without a name, the only catalogue is meant; fails as `_only_catalogue` if it is not known.
        """
        try:
            catalogue = catalogue or self._only_catalogue()
        except NearsightError as error:
            return failed(error)
        with self._lock:
            cache, waiting = self._caches.get(catalogue), self._admitting.get(catalogue)
            if cache is not None:
                return completed(cache)
            if waiting is not None:
                return waiting
            if len(self._admitting) >= self._settings.catalogues_max:
                return failed(Overloaded("too many new catalogues at once", advice="try again"))
            admitted: Future[CatalogueCache] = pending()
            self._admitting[catalogue] = admitted
        when_done(
            self.services.cloud.list_objects(catalogue, self._settings.fetch.timeout_s),
            self.services.background,
            listing_of,
            lambda listing: self._admitted(catalogue, listing),
        )
        return admitted

    def _only_catalogue(self) -> str:
        """The name of the only catalogue that the cloud listed or that has a cache.

        Raises
        ------
        NotFound, InvalidArgument
            As in `choose_catalogue`, if there is none or more than one.
        Unavailable
            As in `known`.
        """
        return choose_catalogue("", self._names())

    def known(self) -> dict[str, CatalogueSummary]:
        """Catalogues that the cloud listed or that have a cache, whose own listing counts.

        Raises
        ------
        Unavailable
            If there is none, but the cloud is unreachable or was not asked yet.
        """
        self._names()
        known = dict(self.listed)
        for cache in self.all():
            listing = cache.listing
            known[cache.name] = CatalogueSummary(
                name=cache.name, objects=len(listing.versions), revision=listing.revision
            )
        return known

    def _names(self) -> set[str]:
        """Names of the known catalogues; raises as `known`."""
        names = {*self.listed, *(cache.name for cache in self.all())}
        if not names and self.cloud_problem:
            raise Unavailable(
                f"the catalogues of the cloud are not known: {self.cloud_problem}",
                advice="try again when the edge reaches its cloud",
            )
        return names

    def _admitted(self, catalogue: str, listing: Listing | NearsightError) -> None:
        cache = self.get(catalogue)
        if cache is None:
            self._create(catalogue, listing)
            return
        # The standby created a cache with the listing of an earlier run: compare it with the cloud's.
        self._complete(catalogue, cache)
        cache.sync.sync()

    def adopt(self, catalogue: str, listing: Listing) -> None:
        """Create the cache of a catalogue with the listing of an earlier run, until the cloud confirms it.

        Called in the background thread. Without a name (stored by an earlier version), nothing is created.
        """
        if catalogue and self.get(catalogue) is None:
            self._unconfirmed[catalogue] = listing
            self._create(catalogue, listing)

    def _create(self, catalogue: str, listing: Listing | NearsightError) -> None:
        try:
            if isinstance(listing, NearsightError):
                raise listing
            self._drop(catalogue, "the cloud has another catalogue of this name")
            cache = self._begin(catalogue, listing)
        except NearsightError as error:
            self._log.warning("no cache for a catalogue", catalogue=catalogue, error=str(error))
            self._complete(catalogue, error)
            return
        with self._lock:
            evicted = None
            if len(self._caches) >= self._settings.catalogues_max:
                evicted = self._caches.pop(next(iter(self._caches)))
            self._caches[catalogue] = cache
        if evicted is not None:
            self._log.info("cache dropped", catalogue=evicted.name, why="least recently used")
            self._close(evicted)
        self._log.info("cache created", catalogue=catalogue, revision=cache.listing.revision)
        self._complete(catalogue, cache)

    def _complete(self, catalogue: str, outcome: CatalogueCache | NearsightError) -> None:
        """Complete the open admission of a catalogue, if there is one."""
        with self._lock:
            admitted = self._admitting.pop(catalogue, None)
        if admitted is None:
            return
        if isinstance(outcome, NearsightError):
            admitted.set_exception(outcome)
        else:
            admitted.set_result(outcome)

    def _begin(self, catalogue: str, listing: Listing) -> CatalogueCache:
        """Create a cache, with the state of an earlier run."""
        store = self.services.store
        replaced = partial(self._create, catalogue)
        make = partial(CatalogueCache, catalogue, listing, self._settings, self.services, replaced=replaced)
        cache = make()
        try:
            cache.start(store.load(catalogue) if store is not None else None)
        except NearsightError as error:
            self._log.error("a cache starts without its learnt state", catalogue=catalogue, error=str(error))
            cache.close()
            cache = make()
            cache.start()
        return cache

    def _drop_if_gone(self, catalogue: str) -> None:
        """Remove the cache of an unlisted catalogue, if the cloud confirms that it does not exist."""

        def listed(outcome: Listing | NearsightError) -> None:
            if isinstance(outcome, NotFound):
                self._drop(catalogue, str(outcome))

        listing = self.services.cloud.list_objects(catalogue, self._settings.fetch.timeout_s)
        when_done(listing, self.services.background, listing_of, listed)

    def _drop(self, catalogue: str, why: str) -> None:
        with self._lock:
            cache = self._caches.pop(catalogue, None)
        if cache is not None:
            self._log.info("cache dropped", catalogue=catalogue, why=why)
            self._close(cache)

    def _close(self, cache: CatalogueCache) -> None:
        if self._journal is not None:
            self._journal.write([cache])
        cache.close()

    def _poll(self) -> None:
        future = self.services.cloud.list_catalogues(_POLL_TIMEOUT_S)
        when_done(future, self.services.background, catalogues_of, self._polled)

    def _polled(self, listed: Mapping[str, CatalogueSummary] | NearsightError) -> None:
        lost = isinstance(listed, NearsightError)
        self._note_cloud(str(listed) if lost else "")
        pause_s = min(self._settings.poll_s, _POLL_LOST_CLOUD_S) if lost else self._settings.poll_s
        self.services.background.submit(self._poll, name="poll", after_s=pause_s)
        if isinstance(listed, NearsightError):
            return
        self.listed = listed
        stored, self._stored_names = self._stored_names, ()
        for catalogue in [name for name in stored if name in listed][: self._settings.catalogues_max]:
            self.admit(catalogue)
        for cache in self.all():
            if cache.name not in listed:
                self._drop_if_gone(cache.name)
                continue
            confirmed = cache.listing is not self._unconfirmed.get(cache.name)
            if not confirmed or listed[cache.name].revision != cache.listing.revision:
                cache.sync.sync()

    def _note_cloud(self, problem: str) -> None:
        if problem and not self.cloud_lost:
            self._lost_at_s = self.services.clock.monotonic()
            self._log.warning("cloud unreachable", endpoint=self._settings.cloud, error=problem)
        elif not problem and self.cloud_problem:
            self._unconfirmed = {cache.name: cache.listing for cache in self.all()}
            self.services.next_tiers.note_alive(CLOUD)
            self._log.info("cloud reached", endpoint=self._settings.cloud)
        self.cloud_problem = problem


class Journal:
    """Writes the learnt state of the caches to the store at regular intervals, in the background thread.

    After a failed write, the next one includes all changes that were not written.

    Parameters
    ----------
    store : StateStore
        File for the state.
    caches : callable
        Returns the current caches.
    background : BackgroundWorker
        Thread that writes.
    every_s : float
        Interval between two writes [s]: the maximum that is lost when the daemon is killed.
    """

    def __init__(
        self,
        store: StateStore,
        caches: Callable[[], Sequence[CatalogueCache]],
        background: BackgroundWorker,
        every_s: float,
    ) -> None:
        self._store = store
        self._caches = caches
        self._background = background
        self._every_s = every_s
        self._log = get_logger("journal")
        self.problem = store.read_only
        """Why the last write failed; empty if it succeeded."""
        if self.problem:
            self._log.warning(
                "the learnt state is kept only in memory until the file can be written",
                error=self.problem,
            )
        # Measurements that the file already has, so that an idle edge does not wear out its disk.
        self._measured: dict[str, Measured | None] = {}
        self._rounds_without_changes = _QUIET_ROUNDS if self.problem else 0

    def start(self) -> None:
        """Schedule the next write."""
        self._background.submit(self._round, name="journal", after_s=self._every_s)

    def write(self, caches: Sequence[CatalogueCache]) -> None:
        """Write the changes of these caches now."""
        changes = {cache.name: self._without_stored(cache.name, cache.learnt()) for cache in caches}
        if not any(changes.values()) and self._rounds_without_changes < _QUIET_ROUNDS:
            self._rounds_without_changes += 1
            return
        try:
            self._store.write(changes)
        except NearsightError as error:
            for cache in caches:
                cache.redo(changes[cache.name])
            if not self.problem:
                self._log.warning("the learnt state cannot be written", error=str(error))
            self.problem = str(error)
            self._measured = {}
            self._rounds_without_changes = _QUIET_ROUNDS
            return
        if self.problem:
            self._log.info("the learnt state is written again")
        self.problem = ""
        self._rounds_without_changes = 0

    def _without_stored(self, catalogue: str, changes: Changes) -> Changes:
        """The changes without measurements that the file already has."""
        if changes.measured == self._measured.get(catalogue):
            return replace(changes, measured=None)
        self._measured[catalogue] = changes.measured
        return changes

    def _round(self) -> None:
        self.start()
        self.write(self._caches())
