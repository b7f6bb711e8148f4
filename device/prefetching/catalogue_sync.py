"""Keeps up with the catalogue: which objects there are, in which versions. Runs in the background thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger

_AT_MOST_EVERY_S = 1.0
_RETRY_S = 5.0


class ObjectLister(Protocol):
    """A tier that lists the catalogue, or several in turn."""

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Ask which objects there are."""

    def get_revision(self, timeout_s: float) -> Future[int]:
        """Ask at which revision the catalogue is."""


class CatalogueSync:
    """Lists the objects again when the revision has changed.

    Parameters
    ----------
    lister : ObjectLister
        Who is asked.
    background : BackgroundWorker
        Runs everything here.
    timeout_s : float
        Longest wait for an answer.
    clock : Clock
        Must run in real time.
    listed : callable
        Takes each listing.
    """

    def __init__(
        self,
        lister: ObjectLister,
        background: BackgroundWorker,
        timeout_s: float,
        clock: Clock,
        listed: Callable[[Listing], None],
    ) -> None:
        self._lister = lister
        self._background = background
        self._timeout_s = timeout_s
        self._clock = clock
        self._listed = listed
        self._log = get_logger("device.catalogue")
        self._revision: int | None = None
        self._open = False
        self._failing = False
        self._last_s = -math.inf

    def note_revision(self, revision: int | None) -> None:
        """An answer of a tier mentions that the catalogue is at this revision; None is ignored."""
        if revision is None or revision == self._revision:
            return
        if self._revision is None:
            self._revision = revision
        else:
            self.sync()

    def sync(self) -> None:
        """List the objects now, or as soon as that was not done a moment ago."""
        wait_s = self._last_s + _AT_MOST_EVERY_S - self._clock.monotonic()
        if wait_s > 0:
            self._background.submit(self.sync, name="sync", after_s=wait_s)
        elif not self._open:
            self._open = True
            when_done(self._lister.list_objects(self._timeout_s), self._background, self._answered)

    def poll(self, period_s: float) -> None:
        """Ask for the revision every ``period_s`` seconds: where no answer mentions it."""

        def ask() -> None:
            when_done(self._lister.get_revision(self._timeout_s), self._background, answered)
            self.poll(period_s)

        def answered(outcome: int | NearsightError) -> None:
            if isinstance(outcome, int):
                self.note_revision(outcome)

        self._background.submit(ask, name="watch", after_s=period_s)

    def _answered(self, outcome: Listing | NearsightError) -> None:
        self._open = False
        self._last_s = self._clock.monotonic()
        if isinstance(outcome, NearsightError):
            log = self._log.debug if self._failing else self._log.warning  # once, not every few seconds
            log("objects not listed", error=str(outcome), retry_s=_RETRY_S)
            self._failing = True
            self._background.submit(self.sync, name="sync", after_s=_RETRY_S)
            return
        self._failing = False
        self._revision = outcome.revision
        self._listed(outcome)
