"""The standbys of all catalogues: their thread, memory and file.

::

    once a second, and when models arrived ──> Standby.work: remove, fetch, build ──> StandbyStore
    a restart ──> StandbyStore ──> CatalogueCaches.adopt: a cache without the cloud
    a request to the cloud failed ──> `run`: look up in a separate thread, so that replies can be received
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.standby.standby import Standby
from nearsight.edge.standby.store import StandbyStore

_EVERY_S = 1.0
_LEAST_S = 0.01
_MB = 10**6


class Standbys:
    """Creates, fills and removes the standbys; there are none if the settings give them no memory.

    Parameters
    ----------
    settings : EdgeSettings
        Settings of the daemon.
    caches : CatalogueCaches
        Caches; each has one standby.
    services : EdgeServices
        Objects that all caches share.

    Raises
    ------
    ForeignStore, Overloaded, ConfigurationError
        As in `StandbyStore.beside`, if the settings name a state file.
    """

    def __init__(self, settings: EdgeSettings, caches: CatalogueCaches, services: EdgeServices) -> None:
        most_mb = settings.memory_mb / 2 if settings.memory_mb else math.inf
        self.budget_bytes = min(settings.standby_mb, most_mb) * _MB
        """Limit of the memory of all standbys [bytes]."""
        self._settings = settings.recognition
        self._caches = caches
        self._services = services
        self._log = get_logger("standby")
        self._worker = BackgroundWorker(services.clock, "nearsight-standby")
        self._lookup_pool = ThreadPoolExecutor(settings.server.workers, "edge-standby")
        self._standbys: dict[str, Standby] = {}
        self._known: set[str] = set()  # catalogues with a standby in memory or in the file
        state = settings.state if self.budget_bytes else None
        self._store = StandbyStore.beside(state) if state is not None else None

    def start(self) -> None:
        """Start filling the standbys."""
        if self.budget_bytes:
            self._worker.start()
            self._worker.submit(self._restore)
            self._worker.submit(self._round, name="round")

    def stop(self, grace_s: float) -> None:
        """Stop. Lookups in progress finish; queued ones are dropped, as the server has stopped before."""
        self._worker.stop(grace_s)
        self._lookup_pool.shutdown(cancel_futures=True)
        if self._store is not None:
            self._store.close()

    def run(self, look: Callable[[], None]) -> None:
        """Run a lookup in a separate thread, so that the caller's thread stays free."""
        self._lookup_pool.submit(look)

    def get(self, catalogue: str) -> Standby | None:
        """The standby of a catalogue; None if it has none."""
        return self._standbys.get(catalogue)

    def size(self, catalogue: str) -> int:
        """Number of objects in the standby of a catalogue."""
        standby = self._standbys.get(catalogue)
        return len(standby) if standby is not None else 0

    def any_answers(self) -> bool:
        """Whether any standby has an index with objects."""
        return any(map(len, tuple(self._standbys.values())))

    @property
    def size_bytes(self) -> int:
        """Memory of all standbys [bytes]."""
        return sum(standby.size_bytes for standby in tuple(self._standbys.values()))

    def facts(self) -> Sequence[tuple[str, str]]:
        """One line for the status per catalogue."""
        return [(f"{name}: standby", self.why(name)) for name in tuple(self._standbys)]

    def why(self, catalogue: str) -> str:
        """State of a catalogue's standby in one line."""
        standby = self._standbys.get(catalogue)
        if standby is None:
            return "none, as standby_mb is 0" if not self.budget_bytes else "none yet"
        outage_s = self._caches.cloud_outage_s
        return standby.why if outage_s is None else standby.why_outage(outage_s)

    def _restore(self) -> None:
        """Create the caches of catalogues from an earlier run, even during an outage of the cloud."""
        listings = self._store.listings() if self._store is not None else {}
        for name, listing in listings.items():
            self._services.background.submit(partial(self._adopt, name, listing))

    def _adopt(self, catalogue: str, listing: Listing) -> None:
        self._caches.adopt(catalogue, listing)
        self._known.add(catalogue)

    def _round(self) -> None:
        """Create, remove and update standbys, and schedule the next round."""
        self._worker.submit(self._round, name="round", after_s=_EVERY_S)
        known = frozenset(self._known)  # read before the caches, so that catalogues adopted meanwhile stay
        caches = {cache.name: cache for cache in self._caches.all()}
        for name in known - caches.keys():
            self._remove(name)
        for name, cache in caches.items():
            if name not in self._standbys or self._standbys[name].cache is not cache:
                self._standbys[name] = self._begin(cache)
                self._known.add(name)
            self._work(name)

    def _remove(self, catalogue: str) -> None:
        """Remove a standby from memory and file; if the file cannot be written, the next round retries."""
        standby = self._standbys.pop(catalogue, None)
        try:
            if self._store is not None:
                self._store.remove(catalogue)
        except NearsightError as error:
            if standby is not None:  # logged once
                self._log.warning(
                    "a removed catalogue is still in the file", catalogue=catalogue, error=str(error)
                )
            return
        self._known.discard(catalogue)

    def _begin(self, cache: CatalogueCache) -> Standby:
        wake = partial(self._work_soon, cache.name)
        standby = Standby(cache, self._settings, self._services, self._store, wake)
        standby.restore()
        return standby

    def _work_soon(self, catalogue: str, after_s: float = 0.0) -> None:
        self._worker.submit(partial(self._work, catalogue), name=f"work {catalogue}", after_s=after_s)

    def _work(self, catalogue: str) -> None:
        standby = self._standbys.get(catalogue)
        if standby is None:
            return
        wait_s = standby.work(self._budget_of(catalogue), cloud_lost=self._caches.cloud_lost)
        if wait_s < _EVERY_S:
            self._work_soon(catalogue, max(_LEAST_S, wait_s))

    def _budget_of(self, catalogue: str) -> float:
        """Equal shares of the budget; shares that a catalogue does not need are divided among the others."""
        left, needs = self.budget_bytes, {name: one.needs_bytes for name, one in self._standbys.items()}
        share = 0.0
        for number, name in enumerate(sorted(needs, key=lambda one: needs[one])):
            share = left / (len(needs) - number)
            if name == catalogue:
                break
            left -= min(share, needs[name])
        return share
