"""A catalogue that changes while it serves: an immutable recognizer, rebuilt in the background and swapped.

Readers use `recognizer` and never block. A change is written to the store first and then enters the next
index. One background thread per catalogue builds the indexes. Changes during a build share the next one. A
caller that needs a change to be recognisable waits for its revision.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from nearsight.common.background.futures import pending
from nearsight.common.background.progress import Progress
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.look_alikes import compare
from nearsight.common.catalogue.store import (
    LOCAL_AUTHOR,
    Author,
    CatalogueChanged,
    CatalogueStore,
    Changes,
    PutOutcome,
    RemoveOutcome,
)
from nearsight.common.catalogue.training import TrainedObject
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, NearsightError, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import model_digest
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings

BACKGROUND_BUILD_SHARE = 0.25
"""Maximum share of one core for building indexes while no caller waits for a revision. For a waiting caller,
the build starts at once."""

RETIREMENT_S = 5.0
"""Time for which a replaced recognizer is kept [s]. Freeing the index of 500 objects takes most of a second.
After this time no request uses it any more, so the builder thread frees it instead of the last request."""

MAX_UNINDEXED = 64
"""Number of objects that may wait for the next index before `put` blocks; or a quarter of the objects in the
index, if that is more."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """All models of one revision, by id, with their digests; their index may still be under construction.

    ``damaged`` gives the reason why further models cannot be read, by id. These are not served until they are
    added again.
    """

    models: Mapping[str, ObjectModel]
    revision: int
    digests: Mapping[str, bytes]
    damaged: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexState:
    """State of a catalogue and its index."""

    objects: int
    """Number of objects in the newest content."""
    revision: int
    indexed_revision: int
    """Revision of the newest content, and of the recognizer in use."""
    last_build_ms: float
    """Duration of the last build of the index [ms]; 0 before the first."""
    problem: str
    """Why the last build of the index failed; empty if it succeeded."""
    damaged: tuple[str, ...]
    """Ids of objects whose models cannot be read."""


class LiveCatalogue:
    """One catalogue in service.

    Parameters
    ----------
    name : str
        Name in the store. A catalogue that does not exist yet is empty, at revision 0.
    store : CatalogueStore
        Holds the catalogue.
    settings : RecognitionSettings
        Settings of the index.
    build : callable
        Builds a recognizer from models; replaceable in tests.
    clock : Clock
        Measures the duration of builds.

    Attributes
    ----------
    recognizer : ObjectRecognizer
        The recognizer in use. Immutable: it stays valid after it was replaced.
    """

    def __init__(
        self,
        name: str,
        store: CatalogueStore,
        settings: RecognitionSettings,
        build: Callable[
            [Iterable[ObjectModel], RecognitionSettings], ObjectRecognizer
        ] = ObjectRecognizer.build,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self._store = store
        self._settings = settings
        self._build = build
        self._clock = clock
        self._log = get_logger("catalogue").bind(catalogue=name)
        self._refreshing = threading.Lock()
        self._putting = threading.Lock()
        self._storing = threading.Lock()
        self._lock = threading.Lock()
        self.content = Content({}, 0, {}, {})
        """The newest content; its models may not be in the recognizer yet."""
        self.recognizer, self._indexed_revision = build((), settings), 0
        self._tried_revision = 0
        self._problem = ""
        self._last_build_ms = 0.0
        self._next_build_s = 0.0
        self._retired: deque[ObjectRecognizer] = deque()
        self._waiting: list[tuple[int, Future[int]]] = []
        self._stopping = False
        self._background = BackgroundWorker(clock, f"index-{name}")

    @property
    def state(self) -> IndexState:
        """State of the catalogue and its index."""
        with self._lock:
            return IndexState(
                len(self.content.models),
                self.content.revision,
                self._indexed_revision,
                self._last_build_ms,
                self._problem,
                tuple(sorted(self.content.damaged)),
            )

    def load(self, progress: Progress = lambda _done, _total: None) -> None:
        """Read the catalogue, build the first index in this thread, and start the builder thread.

        Raises
        ------
        NotFound
            If the store has no such catalogue.
        InternalError
            If the index cannot be built.
        """
        self._apply(self._store.changes_since(self.name, 0, progress))
        self._build_next()
        if self._problem:
            raise InternalError(f"the index of catalogue {self.name!r} cannot be built: {self._problem}")
        self.start()

    def start(self) -> None:
        """Start the builder thread without loading; for a new catalogue."""
        self._background.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the builder thread. Callers that wait for an index, and later changes, get `Unavailable`."""
        with self._storing, self._lock:
            self._stopping = True
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.set_exception(self._out_of_service())
        self._background.stop(timeout_s)

    def put(
        self, objects: Sequence[TrainedObject], by: Author = LOCAL_AUTHOR, *, allow_similar: bool = False
    ) -> PutOutcome:
        """Store new or changed objects and schedule the next index. Durable on return; see `when_current`.

        Each object is compared with the catalogue (`look_alikes`). Twins of other objects are rejected,
        unless ``allow_similar``.

        Raises
        ------
        Unavailable
            If the catalogue is stopped before the objects are stored.
        InternalError
            If too many objects are not in the index, and it cannot be built; nothing is stored then.
        """
        _, new = self._stored_and_new(objects, self.content)
        indexed = self._index_for_comparison()
        alike = {one.model.object_id: indexed.resembling(one.model, one.photos) for one in new}
        with self._putting:  # each thread must compare with the objects that others stored before
            while True:
                content = self.content
                same, new = self._stored_and_new(objects, content)
                for one in new:
                    if one.model.object_id not in alike:  # it was stored, and has been changed or removed
                        alike[one.model.object_id] = indexed.resembling(one.model, one.photos)
                accepted, rejected = compare(new, content.models, alike, indexed, allow_similar=allow_similar)
                try:
                    with self._in_service():
                        outcome = self._store.put(self.name, [*same, *accepted], by, at=content.revision)
                except CatalogueChanged:  # by another process, or by `remove`
                    self.refresh()
                else:
                    self.refresh()
                    return replace(outcome, rejected=tuple(rejected))

    def _stored_and_new(
        self, objects: Sequence[TrainedObject], content: Content
    ) -> tuple[list[TrainedObject], list[TrainedObject]]:
        """The objects that are stored with the same content and training, and the others."""
        ids = {one.model.object_id for one in objects} - content.damaged.keys()
        stored = self._store.contents(self.name, ids)
        same = [one for one in objects if stored.get(one.model.object_id) == (one.content_hash, one.training)]
        return same, [one for one in objects if one not in same]

    def _index_for_comparison(self) -> ObjectRecognizer:
        """An index that contains enough of the objects; waits for the next one if too many are missing."""
        content, indexed = self.content, self.recognizer.models
        missing = sum(indexed.get(name) is not model for name, model in content.models.items())
        if missing > max(MAX_UNINDEXED, len(indexed) // 4):
            try:
                self.when_current(content.revision).result()
            except InternalError as error:
                raise InternalError(
                    f"these objects are not stored: {error.message}", advice=error.advice
                ) from error
        return self.recognizer

    def remove(self, object_ids: Iterable[str], by: Author = LOCAL_AUTHOR) -> RemoveOutcome:
        """Remove objects from the store and schedule the next index.

        Raises
        ------
        NotFound
            If the store has no such catalogue.
        Unavailable
            If the catalogue is stopped.
        """
        with self._in_service():
            outcome = self._store.remove(self.name, object_ids, by)
        self.refresh()
        return outcome

    @contextmanager
    def _in_service(self) -> Iterator[None]:
        """Delay `stop` during a change of the store, and refuse changes afterwards.

        Otherwise a catalogue that was removed could change its successor of the same name unnoticed.
        """
        with self._storing:
            if self._stopping:
                raise self._out_of_service()
            yield

    def refresh(self) -> None:
        """Apply all changes in the store after the known revision, from any process.

        Changes of this process are applied in the same way, so the served content is always what a restart
        would load.
        """
        with self._refreshing:
            self._apply(self._store.changes_since(self.name, self.content.revision))

    def when_current(self, revision: int) -> Future[int]:
        """A future of the revision in service, done when that is at least ``revision``.

        After a failed build, another one is started, because the cause may have been temporary.

        Raises (in the future)
        ----------------------
        InternalError
            If the index could not be built.
        Unavailable
            If the catalogue is stopped before.
        """
        future: Future[int] = pending()
        with self._lock:
            if self._indexed_revision >= revision:
                future.set_result(self._indexed_revision)
            elif self._stopping:
                future.set_exception(self._out_of_service())
            else:
                self._waiting.append((revision, future))
                self._background.submit(self._build_if_due, name="build")
        return future

    def _apply(self, changes: Changes) -> None:
        written = {model.object_id: model for model in changes.written}
        digests = {name: model_digest(model) for name, model in written.items()}
        with self._lock:
            if changes.revision == self.content.revision:
                return
            before, gone = self.content, changes.removed | changes.damaged.keys()
            self.content = Content(
                MappingProxyType(_without(before.models, gone) | written),
                changes.revision,
                MappingProxyType(_without(before.digests, gone) | digests),
                MappingProxyType(_without(before.damaged, gone | written.keys()) | dict(changes.damaged)),
            )
        self._background.submit(self._build_if_due, name="build")
        for object_id, reason in changes.damaged.items():
            self._log.error("object not served: add it again", object_id=object_id, error=reason)

    def _build_if_due(self) -> None:
        """Build the next index, or wait until it is due, so that frequent changes do not occupy a core."""
        with self._lock:
            revision = self.content.revision
            again = any(wanted <= revision for wanted, _ in self._waiting)  # after a failed build
            if self._stopping or (revision == self._tried_revision and not again):
                return
            wait_s = 0.0 if self._waiting else self._next_build_s - self._clock.monotonic()
        if wait_s > 0:
            self._background.submit(self._build_if_due, name="build", after_s=wait_s)
        else:
            self._build_next()

    def _build_next(self) -> None:
        content = self.content
        models, revision = content.models, content.revision
        started_s = self._clock.monotonic()
        built: ObjectRecognizer | None = None
        problem = ""
        try:
            # Sorted by id, as after a restart, so that ties are always resolved in the same way.
            built = self._build([models[key] for key in sorted(models)], self._settings)
        except Exception as error:  # noqa: BLE001  whatever a backend raises, the old index stays in use
            problem = str(error) if isinstance(error, NearsightError) else repr(error)
            self._log.error("index not built, the old one stays in use", revision=revision, exc_info=True)
        ended_s = self._clock.monotonic()
        build_ms = (ended_s - started_s) * 1e3
        with self._lock:
            self._tried_revision, self._problem = revision, problem
            self._next_build_s = ended_s
            if built is not None:
                self._retired.append(self.recognizer)
                self._background.submit(self._retired.popleft, after_s=RETIREMENT_S)
                self.recognizer, self._indexed_revision = built, revision
                self._last_build_ms = build_ms
                self._next_build_s += build_ms / 1e3 * (1 / BACKGROUND_BUILD_SHARE - 1)
            due = [future for wanted, future in self._waiting if wanted <= revision]
            self._waiting = [item for item in self._waiting if item[0] > revision]
        for future in due:
            if built is None:
                future.set_exception(self._build_error())
            else:
                future.set_result(revision)
        if built is not None:
            self._log.info("index in use", revision=revision, objects=len(models), build_ms=round(build_ms))

    def _build_error(self) -> InternalError:
        return InternalError(
            f"the index of catalogue {self.name!r} could not be built; "
            f"changes up to revision {self.content.revision} are stored",
            advice="the old index stays in use: see the cloud's log",
        )

    def _out_of_service(self) -> Unavailable:
        return Unavailable(
            f"catalogue {self.name!r} was removed, or the cloud is stopping",
            advice="repeat the change in a moment",
        )


def _without(values: Mapping[str, V], keys: Set[str]) -> dict[str, V]:
    return {key: value for key, value in values.items() if key not in keys}
