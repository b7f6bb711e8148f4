"""The caches of all catalogues: created on first use, kept in step with the cloud, bounded in number.

A cache is created after the cloud answered a request about its catalogue, and only if the cloud can list
the objects. So names that somebody made up cost the edge nothing, and the first requests of a catalogue do
not wait.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from nearsight.common.background.futures import pending
from nearsight.common.catalogue.answers import listing_of
from nearsight.common.errors import NearsightError, NotFound, Overloaded
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.rpc.client import Reply
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.cloud_client import revisions_of, when_done
from nearsight.edge.journal import Journal
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings

_POLL_LOST_CLOUD_S = 1.0


class CatalogueCaches:
    """Finds, creates and drops the caches.

    Parameters
    ----------
    settings : EdgeSettings
        Of the daemon.
    services : EdgeServices
        Shared parts.
    """

    def __init__(self, settings: EdgeSettings, services: EdgeServices) -> None:
        self._settings = settings
        self.services = services
        self._log = get_logger("caches")
        self._lock = threading.Lock()
        self._caches: dict[str, CatalogueCache] = {}  # the least recently used first
        self._admitting: dict[str, list[Future[CatalogueCache]]] = {}
        self._cloud_problem = "not asked yet"
        self._journal = (
            Journal(services.store, self.all, services.background, settings.state_every_s)
            if services.store is not None
            else None
        )
        # Catalogues that an earlier run learnt about, until their caches are there.
        self._remembered: tuple[str, ...] = services.store.catalogues() if services.store is not None else ()

    def start(self) -> None:
        """Begin to watch the cloud."""
        self.services.background.submit(self._poll, name="poll")
        if self._journal is not None:
            self._journal.start()

    def save(self) -> None:
        """Write what was learnt, at the end, when the background thread is gone."""
        if self._journal is not None:
            self._journal.write(self.all())

    @property
    def journal_problem(self) -> str:
        """Why what was learnt cannot be written; empty if it can, or is not to be."""
        return self._journal.problem if self._journal is not None else ""

    @property
    def cloud_problem(self) -> str:
        """Why the cloud cannot be reached; empty if it can."""
        return self._cloud_problem

    def all(self) -> tuple[CatalogueCache, ...]:
        """All caches, the least recently used first."""
        with self._lock:
            return tuple(self._caches.values())

    def get(self, catalogue: str) -> CatalogueCache | None:
        """The cache of a catalogue, None if it has none yet."""
        with self._lock:
            cache = self._caches.pop(catalogue, None)
            if cache is not None:
                self._caches[catalogue] = cache
            return cache

    def explanations(self) -> tuple[Explanation, ...]:
        """The last decision of every cache that took one."""
        explained = (cache.explanation() for cache in self.all())
        return tuple(one for one in explained if one is not None)

    def admit(self, catalogue: str) -> None:
        """The cloud knows this catalogue: give it a cache, in the background."""
        self._admit(catalogue, None)

    def admitted(self, catalogue: str) -> Future[CatalogueCache]:
        """The cache of a catalogue, as soon as it has one; fails if the cloud does not list it."""
        found: Future[CatalogueCache] = pending()
        self._admit(catalogue, found)
        return found

    def _admit(self, catalogue: str, waiting: Future[CatalogueCache] | None) -> None:
        cache, new = self.get(catalogue), False
        with self._lock:
            cache = cache or self._caches.get(catalogue)
            waiters = self._admitting.get(catalogue)
            if cache is None and waiters is None and len(self._admitting) < self._settings.catalogues_max:
                waiters, new = self._admitting.setdefault(catalogue, []), True
            if waiting is not None and cache is None and waiters is not None:
                waiters.append(waiting)
        if waiting is not None and cache is not None:
            waiting.set_result(cache)
        elif waiting is not None and waiters is None:
            waiting.set_exception(Overloaded("too many new catalogues at once", advice="try again"))
        if new:
            future = self.services.cloud.list_objects(catalogue, self._settings.fetch.timeout_s)
            when_done(
                future,
                lambda outcome: self.services.background.submit(lambda: self._create(catalogue, outcome)),
            )

    def _create(self, catalogue: str, outcome: Reply | NearsightError) -> None:
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            cache = CatalogueCache(catalogue, listing_of(outcome), self._settings, self.services)
            store = self.services.store
            cache.start(store.load(catalogue) if store is not None else None)
        except NearsightError as error:
            self._log.warning("no cache for a catalogue", catalogue=catalogue, error=str(error))
            with self._lock:
                refused = self._admitting.pop(catalogue, [])
            for waiting in refused:
                waiting.set_exception(error)
            return
        with self._lock:
            admitted = self._admitting.pop(catalogue, [])
            evicted = None
            if len(self._caches) >= self._settings.catalogues_max:
                evicted = self._caches.pop(next(iter(self._caches)))
            self._caches[catalogue] = cache
        if evicted is not None:
            self._log.info("cache dropped", catalogue=evicted.name, why="unused for longest")
            self._close(evicted)
        self._log.info("cache created", catalogue=catalogue, revision=cache.revision)
        for waiting in admitted:
            waiting.set_result(cache)

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
        future = self.services.cloud.list_catalogues(min(self._settings.poll_s, 5.0))
        when_done(future, lambda outcome: self.services.background.submit(lambda: self._polled(outcome)))

    def _polled(self, outcome: Reply | NearsightError) -> None:
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            revisions = revisions_of(outcome)
        except NearsightError as error:
            self._note_cloud(str(error))
            self._poll_again(min(self._settings.poll_s, _POLL_LOST_CLOUD_S))
            return
        self._note_cloud("")
        self._poll_again(self._settings.poll_s)
        for catalogue in self._remembered[: self._settings.catalogues_max]:
            if catalogue in revisions:
                self.admit(catalogue)
        self._remembered = ()
        for cache in self.all():
            if cache.name not in revisions:
                self._drop(cache.name, str(NotFound("the cloud has no such catalogue any more")))
            elif revisions[cache.name] != cache.revision:
                cache.sync()

    def _poll_again(self, after_s: float) -> None:
        self.services.background.submit(self._poll, name="poll", after_s=after_s)

    def _note_cloud(self, problem: str) -> None:
        if bool(problem) != bool(self._cloud_problem):
            if problem:
                self._log.warning("cloud lost", error=problem)
            else:
                self._log.info("cloud reached", endpoint=self._settings.cloud)
        self._cloud_problem = problem
