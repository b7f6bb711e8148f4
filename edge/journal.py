"""The journal: every few seconds it hands what the caches learnt to the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.profiler import Measured
from nearsight.edge.state_store import Changes, StateStore

_QUIET_ROUNDS = 30
"""After so many rounds without changes one is written anyway: how long the edge has been in operation."""


class Journal:
    """Writes changes, in the background thread; after a failure again with all that it missed.

    Parameters
    ----------
    store : StateStore
        The file.
    caches : callable
        The caches as of now.
    background : BackgroundWorker
        Who writes.
    every_s : float
        Seconds between two writes: what a killed daemon loses at most.
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
        self._problem = ""
        # What is in the file already, so that an idle edge does not wear out its disk.
        self._measured: dict[str, Measured | None] = {}
        self._rounds_without_changes = 0

    @property
    def problem(self) -> str:
        """Why the last write failed; empty if it did not."""
        return self._problem

    def start(self) -> None:
        """Begin to write."""
        self._background.submit(self._round, name="journal", after_s=self._every_s)

    def write(self, caches: Sequence[CatalogueCache]) -> None:
        """Write now what these learnt."""
        changes = {cache.name: self._news(cache.name, cache.learnt()) for cache in caches}
        if not any(changes.values()) and self._rounds_without_changes < _QUIET_ROUNDS:
            self._rounds_without_changes += 1
            return
        try:
            self._store.write(changes)
        except NearsightError as error:
            for cache in caches:
                cache.not_written(changes[cache.name])
            if not self._problem:
                self._log.warning("what was learnt cannot be written", error=str(error))
            self._problem = str(error)
            self._measured = {}
            self._rounds_without_changes = _QUIET_ROUNDS
            return
        if self._problem:
            self._log.info("what was learnt is written again")
        self._problem = ""
        self._rounds_without_changes = 0

    def _news(self, catalogue: str, changes: Changes) -> Changes:
        """Without measurements that are in the file already."""
        if changes.measured == self._measured.get(catalogue):
            return replace(changes, measured=None)
        self._measured[catalogue] = changes.measured
        return changes

    def _round(self) -> None:
        try:
            self.write(self._caches())
        finally:
            self.start()
