"""Taking a folder of reference images into a catalogue: in parallel, resumable, with a report.

The way is the same whether the objects go straight into a database or to a running cloud: batches of files
are read, what the target already has is passed over, the rest is handed to the target. Each batch is durable
when it is done; a crash loses at most the batches in flight, and running again goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from nearsight.cloud.access import BatchOutcome, CatalogueAccess
from nearsight.cloud.names import check_object
from nearsight.cloud.references import ReferenceImages, read_reference_folder
from nearsight.cloud.training import NewObject
from nearsight.common.errors import InvalidArgument

BATCH_OBJECTS = 16
BATCH_BYTES = 8 * 2**20
"""A batch ends with the object that reaches either limit: bounds memory and the work that can be lost."""

MAX_IMAGE_BYTES = 20 * 2**20
"""Longer files are reported without being read."""

Progress = Callable[[int, int], None]
"""Called with the objects dealt with so far and their total."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An image that could not be used. ``rejected``: the object did not go in, as it has no other."""

    object_id: str
    path: Path | None
    reason: str
    rejected: bool


@dataclass(slots=True)
class IngestionReport:
    """What became of a folder."""

    total: int
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    interrupted: bool = False

    @property
    def rejected(self) -> list[str]:
        """Ids of the objects that did not go in."""
        return [problem.object_id for problem in self.problems if problem.rejected]

    @property
    def done(self) -> int:
        """Objects dealt with."""
        return len(self.added) + len(self.replaced) + len(self.unchanged) + len(self.rejected)

    def merge(self, other: IngestionReport) -> None:
        """Add the lists of another report to this one."""
        self.added += other.added
        self.replaced += other.replaced
        self.unchanged += other.unchanged
        self.problems += other.problems


def ingest_folder(
    folder: Path,
    target: CatalogueAccess,
    *,
    threads: int,
    progress: Progress = lambda _done, _total: None,
) -> IngestionReport:
    """Take all objects of a folder into a target.

    Parameters
    ----------
    folder : Path
        See `nearsight.cloud.references`.
    target : IngestionTarget
        The database or the running cloud that they go to.
    threads : int
        Batches in work at the same time.
    progress : callable
        Called in this thread after each batch.

    Returns
    -------
    IngestionReport
        With ``interrupted`` set if Ctrl-C came: batches that were begun are then finished, no more are begun.

    Raises
    ------
    NotFound, InvalidArgument
        If the folder cannot be ingested at all; see `read_reference_folder`.
    NearsightError
        If the target fails. What was done before stays.
    """
    found = read_reference_folder(folder)
    total = len(found.objects) + len(found.without_image)
    report = IngestionReport(total)
    report.problems += [
        Problem(object_id, None, "listed in objects.csv, but there is no image", rejected=True)
        for object_id in found.without_image
    ]
    batches = _Batches(report, progress)
    stored = target.stored()
    batches.show_progress()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ingest")
    try:
        for batch in _in_batches(found.objects):
            batches.add(pool.submit(_ingest_batch, batch, target, stored))
            batches.wait_for_room(threads)
        batches.wait_for_room(0)
        batches.show_progress()
        target.finish()
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        pool.shutdown(cancel_futures=True)
    batches.complete()
    return report


class _Batches:
    """The batches of one ingestion that are in work or done.

    The report is made of them only at the end: an interruption may come between any two lines.
    """

    def __init__(self, report: IngestionReport, progress: Progress) -> None:
        self._report = report
        self._progress = progress
        self._all: list[Future[IngestionReport]] = []

    def add(self, batch: Future[IngestionReport]) -> None:
        self._all.append(batch)

    def wait_for_room(self, running: int) -> None:
        """Return when at most so many are in work; raise what a batch raised."""
        while len(pending := [batch for batch in self._all if not batch.done()]) > running:
            for batch in wait(pending, return_when=FIRST_COMPLETED).done:
                batch.result()
            self.show_progress()

    def show_progress(self) -> None:
        finished = sum(report.done for report in self._finished())
        self._progress(self._report.done + finished, self._report.total)

    def complete(self) -> None:
        """Add every batch that ended to the report."""
        for report in self._finished():
            self._report.merge(report)

    def _finished(self) -> list[IngestionReport]:
        return [batch.result() for batch in self._all if batch.done() and not batch.cancelled()]


def _in_batches(objects: Sequence[ReferenceImages]) -> Iterator[list[ReferenceImages]]:
    batch: list[ReferenceImages] = []
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
        return 0  # it went away; reading it will say so


def _ingest_batch(
    batch: Sequence[ReferenceImages], target: CatalogueAccess, stored: Mapping[str, str]
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
        _add_outcome(report, target.put(new), used)
    return report


def _read_images(item: ReferenceImages) -> tuple[dict[Path, bytes], list[Problem]]:
    images: dict[Path, bytes] = {}
    failed: dict[Path, str] = {}
    for path in item.paths:
        try:
            size_bytes = path.stat().st_size
            if size_bytes > MAX_IMAGE_BYTES:
                failed[path] = f"the file has {size_bytes} bytes, the limit is {MAX_IMAGE_BYTES}"
            else:
                images[path] = path.read_bytes()
        except OSError as error:
            failed[path] = f"cannot be read: {error.strerror}"
    last = None if images else item.paths[-1]
    return images, [Problem(item.object_id, path, reason, path == last) for path, reason in failed.items()]


def _add_outcome(report: IngestionReport, outcome: BatchOutcome, used: Mapping[str, Sequence[Path]]) -> None:
    report.added += outcome.added
    report.replaced += outcome.replaced
    report.unchanged += outcome.unchanged
    for rejection in outcome.rejected:
        path = used[rejection.object_id][0]
        report.problems.append(Problem(rejection.object_id, path, rejection.reason, rejected=True))
    for image in outcome.skipped:
        path = used[image.object_id][image.image]
        report.problems.append(Problem(image.object_id, path, image.reason, rejected=False))
