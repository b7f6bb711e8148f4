"""Intake of objects over the network: trained, stored, indexed, then acknowledged.

Training has its own few threads, so that a bulk ingestion leaves workers for recognition requests. An
acknowledgement means that the objects are on disk and are recognised from now on. Callers may ask for an
acknowledgement as soon as the objects are on disk.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from nearsight.cloud.catalogues import Catalogues
from nearsight.common.background.futures import completed, flat, then
from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.store import LOCAL_AUTHOR, Author, PutOutcome
from nearsight.common.catalogue.training import NewObject, Rejection, train_objects
from nearsight.common.errors import DeadlineExceeded, NotFound, Overloaded, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings


class ObjectIntake:
    """Trains objects and stores them in catalogues; thread-safe.

    Parameters
    ----------
    catalogues : Catalogues
        Destination of the objects. A catalogue is created with its first object.
    settings : RecognitionSettings
        Settings of the training.
    threads : int
        Number of calls that train at the same time.
    max_pending : int
        Limit of calls that wait or train; bounds the memory of their images.
    """

    def __init__(
        self, catalogues: Catalogues, settings: RecognitionSettings, *, threads: int, max_pending: int
    ) -> None:
        self._catalogues = catalogues
        self._settings = settings
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="intake")
        self._room = threading.BoundedSemaphore(max_pending)
        self._max_pending = max_pending
        self._stopping = False

    def add(
        self,
        catalogue: str,
        objects: Sequence[NewObject],
        *,
        index_later: bool,
        by: Author = LOCAL_AUTHOR,
        allow_similar: bool = False,
        expired: Callable[[], bool] = lambda: False,
    ) -> Future[PutOutcome]:
        """Train and store objects.

        Parameters
        ----------
        catalogue : str
            Name; empty for the only catalogue.
        objects : sequence of NewObject
            May be empty; then the call only waits for the index.
        index_later : bool
            Whether the result is ready when the objects are stored, rather than when they are recognised.
        by : Author
            Author of the change, for the log.
        allow_similar : bool
            Accept images that the catalogue already has under another id.
        expired : callable
            Whether the deadline of the call has passed; called before the work starts.

        Raises
        ------
        Overloaded
            If too many calls are pending.
        InvalidArgument
            If the name of the catalogue is invalid, or empty although there are several, or there are too
            many catalogues.
        NotFound
            If the name is empty and there is no catalogue.
        Unavailable
            If the daemon is starting or stopping, or the database is read-only.
        """
        self._catalogues.check_name(catalogue)
        self._catalogues.store.check_writable()
        if not self._room.acquire(blocking=False):
            raise Overloaded(
                f"{self._max_pending} calls that add objects are in progress",
                advice="send the objects again later",
            )

        def work() -> Future[PutOutcome]:
            try:
                if self._stopping:
                    raise Unavailable("the cloud is stopping")
                if expired():
                    raise DeadlineExceeded("the deadline of the call has passed")
                outcome, live = self._train_and_store(catalogue, objects, by, allow_similar=allow_similar)
            finally:
                self._room.release()
            if live is not None and not index_later:
                return then(live.when_current(outcome.revision), lambda _: outcome)
            return completed(outcome)

        try:
            return flat(self._pool.submit(work))
        except RuntimeError as error:  # the pool is shut down
            self._room.release()
            raise Unavailable("the cloud is stopping") from error

    def stop(self) -> None:
        """Finish calls that are being trained; answer the waiting ones with `Unavailable`."""
        self._stopping = True
        self._pool.shutdown()

    def _train_and_store(
        self, catalogue: str, objects: Sequence[NewObject], by: Author, *, allow_similar: bool
    ) -> tuple[PutOutcome, LiveCatalogue | None]:
        first: dict[str, NewObject] = {}
        repeated = [item for item in objects if first.setdefault(item.object_id, item) is not item]
        training = train_objects([*first.values()], self._settings)
        rejected = training.rejected + tuple(
            Rejection(item.object_id, "the id occurs more than once in the call") for item in repeated
        )
        live: LiveCatalogue | None = None
        outcome = PutOutcome()
        if training.trained:
            outcome, live = self._catalogues.put(catalogue, training.trained, by, allow_similar=allow_similar)
        else:
            try:
                live = self._catalogues.get(catalogue)
                outcome = PutOutcome(revision=live.content.revision)
            except NotFound:
                if not objects:
                    raise
                # All objects were rejected, so no catalogue is created.
        return dataclasses.replace(
            outcome, rejected=rejected + outcome.rejected, skipped=training.skipped
        ), live
