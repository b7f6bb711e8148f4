"""Keeps the list of objects and versions up to date with a catalogue of the next tier."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger

_AT_MOST_EVERY_S = 1.0
_RETRY_S = 5.0


class CatalogueSync:
    """Fetches a new listing after each change, one at a time. Runs in the background thread.

    Parameters
    ----------
    catalogue : str
        Name of the catalogue.
    list_objects : callable
        Requests the listing from the next tier.
    background : BackgroundWorker
        Runs all of this.
    clock : Clock
        Must run in real time.
    listed : callable
        Receives each listing.
    """

    def __init__(
        self,
        catalogue: str,
        list_objects: Callable[[], Future[Listing]],
        background: BackgroundWorker,
        clock: Clock,
        listed: Callable[[Listing], None],
    ) -> None:
        self._job = f"sync {catalogue}"
        self._list_objects = list_objects
        self._background = background
        self._clock = clock
        self._listed = listed
        self._log = get_logger("catalogue").bind(catalogue=catalogue)
        self._revision: int | None = None
        self._open = self._failing = self._closed = False
        self._last_s = -math.inf

    def note_revision(self, revision: int | None) -> None:
        """Record the catalogue's revision from an answer of a tier; `sync` if it changed. None is ignored."""
        if revision is None or revision == self._revision:
            return
        if self._revision is None:
            self._revision = revision
        else:
            self.sync()

    def sync_soon(self) -> None:
        """Schedule `sync` because something contradicts the last listing. May be called from any thread."""
        self._background.submit(self.sync, name=self._job)

    def sync(self) -> None:
        """Request a listing now, or as soon as the minimum interval since the last one has passed."""
        wait_s = self._last_s + _AT_MOST_EVERY_S - self._clock.monotonic()
        if wait_s > 0:
            self._background.submit(self.sync, name=self._job, after_s=wait_s)
        elif not (self._open or self._closed):
            self._open = True
            when_done(self._list_objects(), self._background, self._answered)

    def poll(self, get_revision: Callable[[], Future[int]], period_s: float) -> None:
        """Request the revision every ``period_s`` seconds; for tiers whose answers do not contain it."""

        def ask() -> None:
            when_done(get_revision(), self._background, answered)
            self.poll(get_revision, period_s)

        def answered(outcome: int | NearsightError) -> None:
            if isinstance(outcome, int):
                self.note_revision(outcome)

        self._background.submit(ask, name="watch", after_s=period_s)

    def close(self) -> None:
        """Stop listing; a response that is still outstanding is ignored."""
        self._closed = True

    def _answered(self, outcome: Listing | NearsightError) -> None:
        self._open = False
        self._last_s = self._clock.monotonic()
        if self._closed:
            return
        if isinstance(outcome, NearsightError):
            # Warn once, then log repeated failures at debug level.
            log = self._log.debug if self._failing else self._log.warning
            log("objects not listed", error=str(outcome), retry_s=_RETRY_S)
            self._failing = True
            self._background.submit(self.sync, name=self._job, after_s=_RETRY_S)
            return
        self._failing = False
        self._revision = outcome.revision
        self._listed(outcome)
