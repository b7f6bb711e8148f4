"""Objects that arrive over the network: trained apart from recognition, stored, indexed, then acknowledged.

Training has its own few threads, so that a bulk ingestion leaves workers for those who wait for an answer. An
acknowledgement means that the objects are on disk and, unless the caller wants to know earlier, that they are
recognised from now on.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from nearsight.cloud.catalogue import LiveCatalogue
from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.store import PutOutcome
from nearsight.cloud.training import NewObject, ObjectTrainer, Rejection, TrainingOutcome
from nearsight.common.errors import DeadlineExceeded, NotFound, Overloaded, Unavailable


@dataclass(frozen=True, slots=True)
class IntakeOutcome:
    """What became of the objects of one call."""

    stored: PutOutcome
    training: TrainingOutcome


class ObjectIntake:
    """Takes objects into catalogues; safe to call from several threads.

    Parameters
    ----------
    catalogues : Catalogues
        Where objects go; a catalogue is begun with its first object.
    trainer : ObjectTrainer
        Shared by all threads.
    threads : int
        Calls that train at the same time.
    max_pending : int
        Calls that may be waiting or in work; this bounds the memory that their images take.
    """

    def __init__(
        self, catalogues: Catalogues, trainer: ObjectTrainer, *, threads: int, max_pending: int
    ) -> None:
        self._catalogues = catalogues
        self._trainer = trainer
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
        nobody_waits: Callable[[], bool] = lambda: False,
    ) -> Future[IntakeOutcome]:
        """Train and store objects.

        Parameters
        ----------
        catalogue : str
            Empty: the only one there is.
        objects : sequence of NewObject
            None is legal: that only waits for the index.
        index_later : bool
            Whether to be done when the objects are stored, rather than when they are recognised.
        nobody_waits : callable
            Asked before the work is begun.

        Raises
        ------
        Overloaded
            If too many calls are pending already.
        InvalidArgument
            If the catalogue's name cannot be used.
        Unavailable
            If the daemon is loading or stopping.
        """
        self._catalogues.check_name(catalogue)
        if not self._room.acquire(blocking=False):
            raise Overloaded(
                f"{self._max_pending} calls that add objects are in work",
                advice="send the objects again later",
            )
        answer: Future[IntakeOutcome] = Future()
        answer.set_running_or_notify_cancel()
        try:
            self._pool.submit(self._work, answer, catalogue, objects, index_later, nobody_waits)
        except RuntimeError as error:  # the pool is shut down
            self._room.release()
            raise Unavailable("the cloud is stopping") from error
        return answer

    def stop(self) -> None:
        """Finish what is in work; answer what is not begun with `Unavailable`."""
        self._stopping = True
        self._pool.shutdown()

    def _work(
        self,
        answer: Future[IntakeOutcome],
        catalogue: str,
        objects: Sequence[NewObject],
        index_later: bool,
        nobody_waits: Callable[[], bool],
    ) -> None:
        try:
            if self._stopping:
                raise Unavailable("the cloud is stopping")
            if nobody_waits():
                raise DeadlineExceeded("the caller does not wait any more")
            outcome, live = self._train_and_store(catalogue, objects)
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for the answer
            answer.set_exception(error)
            return
        finally:
            self._room.release()
        if index_later or live is None:
            answer.set_result(outcome)
            return
        live.when_current(outcome.stored.revision).add_done_callback(
            lambda current: _pass_on(current, answer, outcome)
        )

    def _train_and_store(
        self, catalogue: str, objects: Sequence[NewObject]
    ) -> tuple[IntakeOutcome, LiveCatalogue | None]:
        once, repeated = _without_repetitions(objects)
        training = self._trainer.train(once)
        training = TrainingOutcome(training.trained, training.rejected + repeated, training.skipped)
        if training.trained:
            live = self._catalogues.get_or_create(catalogue)
            return IntakeOutcome(live.put(training.trained), training), live
        nothing = PutOutcome((), (), (), 0)
        try:
            live = self._catalogues.get(catalogue)
        except NotFound:
            if objects:  # all were rejected: no reason to begin a catalogue
                return IntakeOutcome(nothing, training), None
            raise
        return IntakeOutcome(dataclasses.replace(nothing, revision=live.revision), training), live


def _without_repetitions(objects: Sequence[NewObject]) -> tuple[list[NewObject], tuple[Rejection, ...]]:
    first: dict[str, NewObject] = {}
    repeated = [item for item in objects if first.setdefault(item.object_id, item) is not item]
    reason = "the id occurs more than once in the call"
    return list(first.values()), tuple(Rejection(item.object_id, reason) for item in repeated)


def _pass_on(current: Future[int], answer: Future[IntakeOutcome], outcome: IntakeOutcome) -> None:
    error = current.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(outcome)
