"""Ingests a folder of reference images into a catalogue: in parallel, resumable, with a report.

The steps are the same for a database and for a running cloud: files are read in batches, objects that the
target already has are skipped, and the others are sent to the target. A completed batch is durable. A crash
loses at most the batches in progress; the next run continues from there.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from nearsight.common.background.progress import Progress
from nearsight.common.catalogue.reference_folder import Reference, read_reference_folder
from nearsight.common.catalogue.store import PutOutcome
from nearsight.common.catalogue.training import NewObject, check_object
from nearsight.common.errors import ImageTooLarge, InvalidArgument, NotFound
from nearsight.common.recognition.images import read_image_file

BATCH_OBJECTS = 16
BATCH_BYTES = 8 * 2**20
"""Limits of a batch; it ends with the object that reaches one. They bound memory and the work a crash
loses."""

_SIGNAL_CHECK_S = 0.1
"""Longest wait without a check for signals [s]; their handlers run between waits."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An image that could not be used.

    ``rejected``: the object was not ingested: it has no usable image or description, or its picture
    is already in the catalogue.
    """

    object_id: str
    path: Path | None
    reason: str
    rejected: bool
    twin: str = ""
    """The object with the same picture, if the object was rejected for that."""


@dataclass(slots=True)
class IngestionReport:
    """Result of ingesting a folder."""

    total: int
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    interrupted: bool = False

    @property
    def rejected(self) -> list[str]:
        """Ids of the objects that were not ingested."""
        return [problem.object_id for problem in self.problems if problem.rejected]

    @property
    def done(self) -> int:
        """Number of objects processed."""
        return len(self.added) + len(self.replaced) + len(self.unchanged) + len(self.rejected)

    def include(self, other: IngestionReport | PutOutcome) -> None:
        """Add the ids of another report, or of a batch, to this report."""
        self.added += other.added
        self.replaced += other.replaced
        self.unchanged += other.unchanged


class IngestionTarget(Protocol):
    """A catalogue that stores objects: a database or a running cloud."""

    def stored(self) -> Mapping[str, str]:
        """Content hashes by id of objects that need not be put again."""

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        """Train and store objects. Called from several threads."""

    def remove(self, object_ids: Sequence[str]) -> object:
        """Remove objects. Called from one of these threads."""

    def finish(self) -> None:
        """Wait until a running cloud recognises all objects that were put; they are durable already.

        Called from one of these threads.
        """


SignalHandler = Callable[[int, FrameType | None], object] | signal.Handlers
"""What `signal.signal` accepts."""


def ingest_folder(
    folder: Path,
    target: IngestionTarget,
    *,
    threads: int,
    allow_similar: bool = False,
    progress: Progress = lambda _done, _total: None,
    interrupted: Callable[[], None] = lambda: None,
    second_interrupt: SignalHandler = signal.default_int_handler,
) -> IngestionReport:
    """Ingest all objects of a folder into a target.

    An object cannot get a picture that another object still has, as after an exchange of two files. If the
    other object has a new picture in the folder, too, it is removed, and both are tried again at the end.

    After Ctrl-C no more batches are started, and those in progress are finished. This holds in the main
    thread if SIGINT has Python's own handler. Another handler, or none, stays in use.

    Parameters
    ----------
    folder : Path
        In the layout described in `reference_folder`.
    target : IngestionTarget
        The database or the running cloud that stores the objects.
    threads : int
        Number of batches processed in parallel.
    allow_similar : bool
        Also accept pictures that exist under another id.
    progress : callable
        Called in this thread at the start, and at least every 0.1 s later. Objects that are tried again count
        as not done.
    interrupted : callable
        Called in this thread after Ctrl-C, before it waits for the batches in progress.
    second_interrupt : signal handler
        Handler of SIGINT after the first Ctrl-C; it stays installed. Default: raise `KeyboardInterrupt`.

    Returns
    -------
    IngestionReport
        ``interrupted`` is set after Ctrl-C.

    Raises
    ------
    NotFound, InvalidArgument
        If the folder cannot be ingested at all; see `read_reference_folder`.
    NearsightError
        If the target fails. Completed batches are kept.
    """
    objects, without_image = read_reference_folder(folder)
    total = len(objects) + len(without_image)
    reason = "listed in objects.csv, but there is no image"
    missing = [Problem(object_id, None, reason, rejected=True) for object_id in without_image]
    report = IngestionReport(total, problems=missing)
    stored = target.stored()
    progress(report.done, total)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ingest")
    batches = _Batches(pool, report, progress)
    outdated: set[str] = set()

    def put_all(some: Sequence[Reference]) -> bool:
        for batch in _in_batches(some):
            batches.start(_ingest_batch, batch, target, stored, allow_similar)
            if not batches.wait(threads):
                break
        return batches.wait(0)

    try:
        with _interrupt_handler(batches.interrupt, second_interrupt):
            if put_all(objects):
                twins = {problem.object_id: problem.twin for problem in report.problems if problem.twin}
                outdated = twins.keys() & twins.values()
                if outdated and batches.call(target.remove, sorted(outdated)):
                    report.problems = [one for one in report.problems if one.object_id not in twins]
                    put_all([item for item in objects if item.object_id in twins])
                batches.call(target.finish)
        if report.interrupted:
            interrupted()
    finally:
        pool.shutdown(cancel_futures=True)
    batches.collect()
    kept = stored.keys() - outdated
    report.problems = [
        replace(one, reason=f"{one.reason}; its earlier picture stays in use")
        if one.rejected and one.object_id in kept
        else one
        for one in report.problems
    ]
    return report


@contextmanager
def _interrupt_handler(interrupt: Callable[[], None], second: SignalHandler) -> Iterator[None]:
    """Within the block, the first Ctrl-C calls ``interrupt`` and installs the handler ``second``.

    Python's own handler could raise `KeyboardInterrupt` inside `submit`. The pool would not wait for the
    thread that was being started.
    """
    python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not python_handles or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, second)
        interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _Batches:
    """The batches of one ingestion; their results are added to the report in the thread that waits."""

    def __init__(self, pool: ThreadPoolExecutor, report: IngestionReport, progress: Progress) -> None:
        self._pool = pool
        self._report = report
        self._progress = progress
        self._running: set[Future[IngestionReport]] = set()

    def start(self, work: Callable[..., IngestionReport], *arguments: object) -> None:
        self._running.add(self._pool.submit(work, *arguments))

    def call(self, work: Callable[..., object], *arguments: object) -> bool:
        """Call in the pool, and wait; False after an interruption, also an earlier one."""

        def called() -> IngestionReport:
            work(*arguments)
            return IngestionReport(0)

        if self.wait(0):
            self.start(called)
        return self.wait(0)

    def interrupt(self) -> None:
        """End the current `wait` and all later ones. Called by a signal handler, so it takes no lock."""
        self._report.interrupted = True

    def wait(self, running: int) -> bool:
        """Wait until at most ``running`` batches are in progress; False after an interruption.

        Raises the error of a batch that failed.
        """
        while True:
            self._progress(self._report.done, self._report.total)
            if self._report.interrupted or len(self._running) <= running:
                return not self._report.interrupted
            ended, self._running = wait(self._running, _SIGNAL_CHECK_S, FIRST_COMPLETED)
            self._include(ended)

    def collect(self) -> None:
        """Add the results of the remaining batches, after the pool is shut down."""
        self._include(self._running)

    def _include(self, ended: Iterable[Future[IngestionReport]]) -> None:
        for batch in ended:
            if not batch.cancelled():
                done = batch.result()
                self._report.include(done)
                self._report.problems += done.problems


def _in_batches(objects: Sequence[Reference]) -> Iterator[list[Reference]]:
    batch: list[Reference] = []
    size_bytes = 0
    for item in objects:
        batch.append(item)
        size_bytes += sum(_size_bytes(path) for path in item.paths)
        if len(batch) >= BATCH_OBJECTS or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # the file was deleted; reading it reports the error


def _ingest_batch(
    batch: Sequence[Reference], target: IngestionTarget, stored: Mapping[str, str], allow_similar: bool
) -> IngestionReport:
    report = IngestionReport(0)
    new: list[NewObject] = []
    used: dict[str, list[Path]] = {}
    for item in batch:
        images, problems = _read_images(item)
        report.problems += problems
        if not images:
            continue
        try:
            check_object(item.object_id, item.label, item.metadata)
        except InvalidArgument as error:
            report.problems.append(Problem(item.object_id, item.paths[0], str(error), rejected=True))
            continue
        candidate = NewObject(item.object_id, item.label, tuple(images.values()), item.metadata)
        if stored.get(item.object_id) == candidate.content_hash:
            report.unchanged.append(item.object_id)
            continue
        new.append(candidate)
        used[item.object_id] = list(images)
    if new:
        outcome = target.put(new, allow_similar=allow_similar)
        report.include(outcome)
        report.problems += [
            Problem(one.object_id, used[one.object_id][0], one.reason, rejected=True, twin=one.twin)
            for one in outcome.rejected
        ]
        report.problems += [
            Problem(one.object_id, used[one.object_id][one.image], one.reason, rejected=False)
            for one in outcome.skipped
        ]
    return report


def _read_images(item: Reference) -> tuple[dict[Path, bytes], list[Problem]]:
    images: dict[Path, bytes] = {}
    failed: dict[Path, str] = {}
    for path in item.paths:
        try:
            images[path] = read_image_file(path)
        except (ImageTooLarge, NotFound) as error:
            failed[path] = error.message
    last = None if images else item.paths[-1]
    return images, [Problem(item.object_id, path, reason, path == last) for path, reason in failed.items()]
