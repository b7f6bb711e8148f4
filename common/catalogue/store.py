"""The catalogue store: catalogues of trained objects in one SQLite file.

Why SQLite: a single file is easy to copy and back up, it has transactions, and a second process may use it
(such as an ingestion beside a running daemon). With write-ahead logging, reads continue during a commit. With
``synchronous=FULL``, a commit survives a killed process and a power failure.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nearsight.common.catalogue.schema import FORMAT
from nearsight.common.catalogue.training import (
    MAX_CATALOGUES,
    Rejection,
    SkippedImage,
    TrainedObject,
    check_catalogue_limit,
    check_catalogue_name,
    check_object,
    unknown_catalogue,
)
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.database.database_file import DatabaseFile
from nearsight.common.errors import CorruptStore
from nearsight.common.recognition.codec import object_model_from_bytes, object_model_to_bytes
from nearsight.common.recognition.models import ObjectModel

KEPT_LOG_ENTRIES = 1_000_000
"""Maximum number of log entries; older ones are deleted."""


class Author(NamedTuple):
    """Author of a change: the name of the key and the public key (Z85), which is empty without CURVE."""

    name: str
    public_key: str = ""


LOCAL_AUTHOR = Author("local")
"""A program on this machine, which needs no key."""


class LogEntry(NamedTuple):
    """One change in the log; ``object_id`` is empty if the catalogue itself was created or removed."""

    time_s: float
    author: str
    public_key: str
    catalogue: str
    revision: int
    action: str
    object_id: str


_Rivals = dict[str, dict[str, int | None]]
"""Changes of rivals by object: new inliers (or `TWIN`) by rival; None if it is no longer a rival."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Summary of an object, available without reading its model."""

    object_id: str
    label: str
    version: int
    views: int
    model_bytes: int
    content_hash: str
    training: str


@dataclass(frozen=True, slots=True)
class CatalogueInfo:
    """Name, number of objects and revision of a catalogue."""

    name: str
    objects: int
    revision: int


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """Result of putting objects."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Ids of objects that were new, that replaced an older version, and that were stored already."""
    revision: int = 0
    """Revision of the catalogue afterwards; 0 if it does not exist."""
    rejected: tuple[Rejection, ...] = ()
    skipped: tuple[SkippedImage, ...] = ()
    """Objects that could not be trained or were refused, and images that could not be used."""


@dataclass(frozen=True, slots=True)
class RemoveOutcome:
    """Ids that were removed, ids that did not exist, and the revision of the catalogue afterwards."""

    removed: tuple[str, ...]
    missing: tuple[str, ...]
    revision: int


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Changes of a catalogue after a given revision."""

    written: tuple[ObjectModel, ...]
    """Models that were added or replaced."""
    removed: frozenset[str]
    """Ids of objects that were removed."""
    revision: int
    """Revision after these changes."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Why some of the written models cannot be read, by id."""


class CatalogueChanged(Exception):
    """Another writer changed the catalogue in the meantime: read it again."""


class CatalogueStore(DatabaseFile):
    """Catalogues in one SQLite file; safe for use by several threads and processes.

    Parameters
    ----------
    path, create, or_read_only
        As for `DatabaseFile`.
    max_catalogues : int
        Maximum number of catalogues; if the file has more, they are kept.
    clock : Clock
        Time stamps of the log.

    Raises
    ------
    CorruptStore, NotFound, ConfigurationError
        As `open_database`.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        or_read_only: bool = False,
        max_catalogues: int = MAX_CATALOGUES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(path, FORMAT, create=create, or_read_only=or_read_only)
        self.max_catalogues = max_catalogues
        self._clock = clock

    def catalogues(self) -> tuple[CatalogueInfo, ...]:
        """All catalogues, sorted by name."""
        query = """SELECT name, count(object_id), catalogues.revision FROM catalogues
                   LEFT JOIN objects ON catalogue = name WHERE NOT removed GROUP BY name ORDER BY name"""
        return tuple(CatalogueInfo(*row) for row in self.rows(query))

    def objects(self, catalogue: str) -> tuple[StoredObject, ...]:
        """Summaries of a catalogue's objects, sorted by id.

        Raises
        ------
        NotFound
            If there is no such catalogue.
        """
        query = """SELECT object_id, label, version, views, length(model), content_hash, training
                   FROM objects WHERE catalogue = ? ORDER BY object_id"""
        with self.transaction("DEFERRED"):
            self._revision_of(catalogue)
            return tuple(StoredObject(*row) for row in self.rows(query, catalogue))

    def contents(self, catalogue: str, object_ids: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Content hash and training of these objects, by id; without those that do not exist."""
        query = "SELECT content_hash, training FROM objects WHERE catalogue = ? AND object_id = ?"
        found = ((object_id, self.rows(query, catalogue, object_id)) for object_id in object_ids)
        return {object_id: (rows[0][0], rows[0][1]) for object_id, rows in found if rows}

    def put(
        self,
        catalogue: str,
        objects: Sequence[TrainedObject],
        by: Author = LOCAL_AUTHOR,
        *,
        at: int | None = None,
    ) -> PutOutcome:
        """Add or replace objects in one transaction; create the catalogue if it does not exist.

        An object with the stored content and training is left unchanged, unless its model is damaged. So a
        repeated call changes nothing. Rivals stay mutual: objects that become or cease to be rivals also get
        a new version. The changes are durable on return.

        Raises
        ------
        InvalidArgument
            If a name is not valid, or the maximum number of catalogues is reached.
        CatalogueChanged
            If ``at`` is given and the catalogue has another revision; a missing catalogue is at revision 0.
        """
        check_catalogue_name(catalogue)
        for item in objects:
            check_object(item.model.object_id, item.model.label, item.model.metadata)
        added: list[str] = []
        replaced: list[str] = []
        unchanged: list[str] = []
        rivals: _Rivals = defaultdict(dict)
        with self.transaction():
            created = self._create_if_missing(catalogue)
            revision = self._revision_of(catalogue) + 1
            if at is not None and (at > 0 if created else revision != at + 1):
                raise CatalogueChanged
            for item in objects:
                object_id = item.model.object_id
                old = self.contents(catalogue, [object_id]).get(object_id)
                model = self._model(catalogue, object_id)
                if model is not None and old == (item.content_hash, item.training):
                    unchanged.append(object_id)
                    continue
                (replaced if old else added).append(object_id)
                for rival in {**(model.rivals if model else {}), **item.model.rivals}:
                    rivals[rival][object_id] = item.model.rivals.get(rival)
                self._write(catalogue, item, revision)
            done = [("began", "")] * created + [("added", one) for one in added]
            self._log(by, catalogue, revision, [*done, *(("replaced", one) for one in replaced)])
            self._update_rivals(catalogue, rivals, revision)
            revision = self._commit_revision(catalogue, revision, changed=bool(added or replaced))
        return PutOutcome(tuple(added), tuple(replaced), tuple(unchanged), revision)

    def remove(self, catalogue: str, object_ids: Iterable[str], by: Author = LOCAL_AUTHOR) -> RemoveOutcome:
        """Remove objects in one transaction.

        Raises
        ------
        NotFound
            If there is no such catalogue.
        """
        removed: list[str] = []
        missing: list[str] = []
        rivals: _Rivals = defaultdict(dict)
        with self.transaction():
            revision = self._revision_of(catalogue) + 1
            for object_id in dict.fromkeys(object_ids):
                model = self._model(catalogue, object_id)
                for rival in model.rivals if model else ():
                    rivals[rival][object_id] = None
                query = "DELETE FROM objects WHERE catalogue = ? AND object_id = ? RETURNING version"
                versions = self.rows(query, catalogue, object_id)
                (removed if versions else missing).append(object_id)
                for (version,) in versions:
                    gone = (catalogue, object_id, revision, version)
                    self._connection.execute("INSERT INTO removed_objects VALUES (?, ?, ?, ?)", gone)
            self._log(by, catalogue, revision, [("removed", one) for one in removed])
            self._update_rivals(catalogue, rivals, revision)
            revision = self._commit_revision(catalogue, revision, changed=bool(removed))
        return RemoveOutcome(tuple(removed), tuple(missing), revision)

    def remove_catalogue(self, catalogue: str, by: Author = LOCAL_AUTHOR) -> int:
        """Remove a catalogue with all its objects in one transaction; returns the number of objects.

        If a catalogue of this name is created again, its revision and the versions of its objects continue.
        So other tiers never confuse cached data of the old catalogue with the new one.

        Raises
        ------
        NotFound
            If there is no such catalogue.
        """
        with self.transaction() as connection:
            revision = self._revision_of(catalogue) + 1
            connection.execute(
                "INSERT INTO removed_objects SELECT catalogue, object_id, ?, version FROM objects "
                "WHERE catalogue = ?",
                (revision, catalogue),
            )
            objects = connection.execute("DELETE FROM objects WHERE catalogue = ?", (catalogue,)).rowcount
            connection.execute("UPDATE catalogues SET removed = 1 WHERE name = ?", (catalogue,))
            self._log(by, catalogue, revision, [("removed", "")])
            self._commit_revision(catalogue, revision, changed=True)
        return objects

    def note_network(self, by: Author, name: str, version: int, done: str) -> None:
        """Write an action on a network into the log."""
        with self.transaction():
            self._log(by, name, version, [(done, "the network")])

    def log(self, catalogue: str = "", last: int = 100) -> tuple[LogEntry, ...]:
        """The last ``last`` changes of one catalogue (of all if empty), in chronological order."""
        query = """SELECT * FROM (
                       SELECT number, time_s, author, public_key, catalogue, revision, action, object_id
                       FROM log WHERE ? IN (catalogue, '') ORDER BY number DESC LIMIT ?
                   ) ORDER BY number"""
        return tuple(LogEntry(*row[1:]) for row in self.rows(query, catalogue, last))

    def changes_since(
        self, catalogue: str, revision: int, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> Changes:
        """Objects written and removed after ``revision``; all objects for revision 0.

        Parameters
        ----------
        catalogue : str
            Name of the catalogue.
        revision : int
            Last revision that the caller has.
        progress : callable
            Called with the number of models read so far and the total.

        Raises
        ------
        NotFound
            If there is no such catalogue.
        """
        condition = "FROM objects WHERE catalogue = ? AND revision > ?"
        with self.transaction("DEFERRED"):
            latest = self._revision_of(catalogue)
            ((total,),) = self.rows(f"SELECT count(*) {condition}", catalogue, revision)
            written: list[ObjectModel] = []
            damaged: dict[str, str] = {}
            rows = self._connection.execute(f"SELECT {_MODEL} {condition}", (catalogue, revision))
            for done, row in enumerate(rows, 1):
                model = _model_in(row)
                if isinstance(model, ObjectModel):
                    written.append(model)
                else:
                    damaged[row[0]] = model
                progress(done, total)
            query = "SELECT object_id FROM removed_objects WHERE catalogue = ? AND revision > ?"
            removed = self.rows(query, catalogue, revision)
            return Changes(tuple(written), frozenset(row[0] for row in removed), latest, damaged)

    def damaged(self, catalogue: str) -> frozenset[str]:
        """Ids of a catalogue's objects whose models cannot be read; reads all models."""
        with self.reading() as connection:
            rows = connection.execute(f"SELECT {_MODEL} FROM objects WHERE catalogue = ?", (catalogue,))
            return frozenset(row[0] for row in rows if not isinstance(_model_in(row), ObjectModel))

    def outdated(self, training: str) -> Mapping[str, int]:
        """Number of objects whose training differs from ``training``, by catalogue; without zeros."""
        query = "SELECT catalogue, count(*) FROM objects WHERE training != ? GROUP BY catalogue"
        return dict(self.rows(query, training))

    def data_version(self) -> int:
        """A number that changes when another connection, in any process, has committed."""
        ((version,),) = self.rows("PRAGMA data_version")
        return int(version)

    def _revision_of(self, catalogue: str) -> int:
        query = "SELECT name, revision FROM catalogues WHERE NOT removed"
        revisions = dict(self._connection.execute(query))
        if catalogue not in revisions:
            raise unknown_catalogue(catalogue, revisions)
        return int(revisions[catalogue])

    def _create_if_missing(self, catalogue: str) -> bool:
        """Create the catalogue unless it exists; returns whether it was created."""
        known = [name for (name,) in self.rows("SELECT name FROM catalogues WHERE NOT removed")]
        if catalogue in known:
            return False
        check_catalogue_limit(len(known), self.max_catalogues)
        self._connection.execute(
            "INSERT INTO catalogues (name, revision) VALUES (?, 0) ON CONFLICT DO UPDATE SET removed = 0",
            (catalogue,),
        )
        return True

    def _log(self, by: Author, catalogue: str, revision: int, done: Iterable[tuple[str, str]]) -> None:
        rows = [(self._clock.wall(), *by, catalogue, revision, *one) for one in done]
        self._connection.executemany("INSERT INTO log VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", rows)
        oldest = "SELECT max(number) - ? FROM log"
        self._connection.execute(f"DELETE FROM log WHERE number <= ({oldest})", (KEPT_LOG_ENTRIES,))

    def _commit_revision(self, catalogue: str, revision: int, *, changed: bool) -> int:
        if not changed:
            return revision - 1
        self._connection.execute("UPDATE catalogues SET revision = ? WHERE name = ?", (revision, catalogue))
        return revision

    def _write(self, catalogue: str, item: TrainedObject, revision: int) -> None:
        key = (catalogue, item.model.object_id)
        query = "SELECT max(version) FROM {} WHERE catalogue = ? AND object_id = ?"
        last = [self.rows(query.format(table), *key)[0][0] or 0 for table in ("objects", "removed_objects")]
        model = dataclasses.replace(item.model, version=max(last) + 1)
        self._connection.execute("DELETE FROM removed_objects WHERE catalogue = ? AND object_id = ?", key)
        data = object_model_to_bytes(model)
        row = (*key, revision, model.version, model.label, len(model.views), item.content_hash, item.training)
        self._connection.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, data)
        )

    def _update_rivals(self, catalogue: str, changes: _Rivals, revision: int) -> None:
        """Write a new version of the objects whose rivals change."""
        for object_id, changed in changes.items():
            model = self._model(catalogue, object_id)
            if model is None:  # the rival was removed as well
                continue
            rivals = {name: value for name, value in {**model.rivals, **changed}.items() if value is not None}
            if rivals != model.rivals:
                model = dataclasses.replace(model, rivals=rivals, version=model.version + 1)
                self._connection.execute(
                    "UPDATE objects SET model = ?, version = ?, revision = ? "
                    "WHERE catalogue = ? AND object_id = ?",
                    (object_model_to_bytes(model), model.version, revision, catalogue, object_id),
                )

    def _model(self, catalogue: str, object_id: str) -> ObjectModel | None:
        """A model; None if it does not exist or is damaged, so that it is ingested again."""
        query = f"SELECT {_MODEL} FROM objects WHERE catalogue = ? AND object_id = ?"
        for row in self.rows(query, catalogue, object_id):
            if isinstance(model := _model_in(row), ObjectModel):
                return model
        return None


_MODEL = "object_id, label, version, views, model"


def _model_in(row: tuple[Any, ...]) -> ObjectModel | str:
    """The model in the columns `_MODEL` of a row, or the reason why it is damaged."""
    *row_fields, data = row
    if not isinstance(data, bytes):
        return "no model is stored"
    try:
        model = object_model_from_bytes(data)
    except CorruptStore as error:
        return error.message
    fits = row_fields == [model.object_id, model.label, model.version, len(model.views)]
    return model if fits else "its row and its model do not match"
