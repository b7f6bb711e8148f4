"""The learnt state of the edge in one SQLite file: the next start continues with it (section 3.5.2).

The background thread writes the changes every few seconds. After a commit the data are with the operating
system: a killed daemon loses the last seconds, a power cut perhaps more. Neither damages the file.

A damaged file is set aside under another name and replaced by an empty one, because an edge can learn again
(decision 035). With a full or read-only disk an edge still serves requests. It keeps the learnt state in
memory, and writes it as soon as the disk permits.

Ages are measured in the edge's time of operation. The machine's clock is not used, because it may be wrong
and be corrected meanwhile. Moreover, the popularity at the end of a day is the best estimate for the next
morning, however many hours are between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nearsight.common.clock import Clock
from nearsight.common.database.database_file import DatabaseFile
from nearsight.common.errors import CorruptStore
from nearsight.common.object_cache.markov import MarkovChanges, TransitionCount
from nearsight.edge.profiler import Measured
from nearsight.edge.renewable_file import open_or_replace, renewable_format
from nearsight.edge.request_distribution import PopularityChanges, StoredCount

_VERSION_1 = """
CREATE TABLE operation (                 -- one row: total time of operation with this file
    operated_s REAL NOT NULL
);
CREATE TABLE popularity (
    catalogue TEXT NOT NULL,
    object_id TEXT NOT NULL,
    count REAL NOT NULL,                 -- at operated_s; decays since then
    operated_s REAL NOT NULL,
    PRIMARY KEY (catalogue, object_id)
) WITHOUT ROWID;
CREATE TABLE transitions (
    catalogue TEXT NOT NULL,
    history TEXT NOT NULL,               -- JSON list of object ids, latest last
    object_id TEXT NOT NULL,
    count REAL NOT NULL,
    operated_s REAL NOT NULL,
    PRIMARY KEY (catalogue, history, object_id)
) WITHOUT ROWID;
CREATE TABLE measured (
    catalogue TEXT PRIMARY KEY NOT NULL,
    content TEXT NOT NULL                -- JSON: costs of lookups and misses
) WITHOUT ROWID;
"""

FORMAT = renewable_format(0x4E53_4553, (_VERSION_1,), "edge.db")  # "NSES"


_CHUNK = 10_000  # rows per read, so that millions of transitions are not in memory twice

_INVALID_ROWS = (
    """SELECT 'operation' FROM operation
       WHERE typeof(operated_s) != 'real' OR operated_s NOT BETWEEN 0 AND 1e300""",
    """SELECT catalogue FROM popularity
       WHERE typeof(count) != 'real' OR count NOT BETWEEN 0 AND 1e300
       OR typeof(operated_s) != 'real' OR operated_s NOT BETWEEN 0 AND 1e300""",
    """SELECT catalogue FROM transitions
       WHERE typeof(count) != 'real' OR count NOT BETWEEN 0 AND 1e300
       OR typeof(operated_s) != 'real' OR operated_s NOT BETWEEN 0 AND 1e300
       OR CASE WHEN json_valid(history) THEN json_type(history) != 'array'
               OR EXISTS (SELECT 1 FROM json_each(history) WHERE type != 'text') ELSE 1 END""",
)


@dataclass(frozen=True, slots=True)
class Learnt:
    """State of one catalogue from an earlier run; ages in seconds of operation.

    ``transitions`` can be iterated only once.
    """

    popularity: Iterable[StoredCount] = ()
    transitions: Iterable[TransitionCount] = ()
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one catalogue's state since the last write."""

    popularity: PopularityChanges = field(default_factory=PopularityChanges)
    transitions: MarkovChanges = field(default_factory=MarkovChanges)
    measured: Measured | None = None

    def __bool__(self) -> bool:
        return bool(self.popularity or self.transitions or self.measured is not None)


class StateStore(DatabaseFile):
    """The file; for one process, and thread-safe.

    Parameters
    ----------
    path : Path
        Created if it does not exist.
    clock : Clock
        Source of the time of operation.

    Raises
    ------
    CorruptStore
        If the file is damaged; `ForeignStore` if it does not belong to an edge, or has a newer format. The
        file is not modified.
    Overloaded
        If another edge uses the file.
    ConfigurationError
        If the folder does not exist. A full or read-only disk is not an error: see `read_only`.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, FORMAT, create=True, or_read_only=True)
        self._clock = clock
        self.damaged: Path | None = None
        """New path of a damaged file that was replaced; None if there was none."""
        try:
            with self.transaction("DEFERRED"):
                self._check_rows()
                row = self._execute("SELECT operated_s FROM operation").fetchone()
        except BaseException:
            self.close()
            raise
        self._began_s = clock.monotonic() - (row[0] if row is not None else 0.0)

    @classmethod
    def open_or_replace(cls, path: Path, clock: Clock) -> StateStore:
        """Open the file; a damaged file is set aside and replaced by an empty one.

        Raises
        ------
        ForeignStore, Overloaded, ConfigurationError
            As in the constructor.
        """
        store, damaged = open_or_replace(path, lambda place: cls(place, clock))
        store.damaged = damaged
        return store

    def catalogues(self) -> tuple[str, ...]:
        """Catalogues with stored counts."""
        query = "SELECT catalogue FROM popularity UNION SELECT catalogue FROM transitions ORDER BY 1"
        return tuple(name for (name,) in self.rows(query))

    def load(self, catalogue: str) -> Learnt:
        """The stored state of a catalogue."""
        now_s = self._operated_s()
        counts = self._chunks(
            "SELECT object_id, count, operated_s FROM popularity WHERE catalogue = ?", catalogue
        )
        measured = [
            Measured.model_validate_json(content)
            for (content,) in self.rows("SELECT content FROM measured WHERE catalogue = ?", catalogue)
        ]
        return Learnt(
            tuple(StoredCount(name, count, _age(now_s, at_s)) for name, count, at_s in counts),
            self._transitions(catalogue, now_s),
            measured[0] if measured else None,
        )

    def _transitions(self, catalogue: str, now_s: float) -> Iterator[TransitionCount]:
        statement = "SELECT history, object_id, count, operated_s FROM transitions WHERE catalogue = ?"
        for history, name, count, at_s in self._chunks(statement, catalogue):
            yield TransitionCount(tuple(json.loads(history)), name, count, _age(now_s, at_s))

    def _chunks(self, statement: str, catalogue: str) -> Iterator[tuple[Any, ...]]:
        with self.reading():
            cursor = self._execute(statement, catalogue)
        while True:
            with self.reading():
                rows = cursor.fetchmany(_CHUNK)
            if not rows:
                return
            yield from rows

    def _check_rows(self) -> None:
        """Raise an error if a row is invalid. Checked only at the start; later reads need no check."""
        for statement in _INVALID_ROWS:
            row = self._execute(f"{statement} LIMIT 1").fetchone()
            if row is not None:
                raise self._invalid(row[0])
        for catalogue, content in self._execute("SELECT catalogue, content FROM measured"):
            try:
                Measured.model_validate_json(content)
            except ValidationError as error:
                raise self._invalid(catalogue) from error

    def _invalid(self, catalogue: str) -> CorruptStore:
        return self.corrupt(f"its content about {catalogue!r} is invalid")

    def write(self, changes: Mapping[str, Changes]) -> None:
        """Write the changes of all catalogues in one transaction.

        Raises
        ------
        Unavailable, CorruptStore, Overloaded
            If the file cannot be written.
        """
        now_s = self._operated_s()
        with self.transaction():
            for catalogue, changed in changes.items():
                self._write_popularity(catalogue, changed.popularity, now_s)
                self._write_transitions(catalogue, changed.transitions, now_s)
                if changed.measured is not None:
                    self._execute(
                        "INSERT OR REPLACE INTO measured VALUES (?, ?)",
                        catalogue,
                        changed.measured.model_dump_json(),
                    )
            self._execute("INSERT OR REPLACE INTO operation (rowid, operated_s) VALUES (1, ?)", now_s)

    def _write_popularity(self, catalogue: str, changes: PopularityChanges, now_s: float) -> None:
        self._connection.executemany(
            "DELETE FROM popularity WHERE catalogue = ? AND object_id = ?",
            [(catalogue, name) for name in changes.removed_objects],
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO popularity VALUES (?, ?, ?, ?)",
            [(catalogue, name, count, now_s) for name, count in changes.counts.items()],
        )

    def _write_transitions(self, catalogue: str, changes: MarkovChanges, now_s: float) -> None:
        if changes.removed_objects:  # one statement, as it reads all transitions
            self._execute(
                "WITH gone AS (SELECT value FROM json_each(?)) DELETE FROM transitions WHERE catalogue = ? "
                "AND (object_id IN gone OR EXISTS (SELECT 1 FROM json_each(history) WHERE value IN gone))",
                json.dumps(changes.removed_objects),
                catalogue,
            )
        keys = [(catalogue, json.dumps(one.history), one.object_id) for one in changes.counts]
        gone = [key for key, one in zip(keys, changes.counts, strict=True) if one.count <= 0]
        self._connection.executemany(
            "DELETE FROM transitions WHERE catalogue = ? AND history = ? AND object_id = ?", gone
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO transitions VALUES (?, ?, ?, ?, ?)",
            [
                (*key, one.count, now_s)
                for key, one in zip(keys, changes.counts, strict=True)
                if one.count > 0
            ],
        )

    def _operated_s(self) -> float:
        """Total time of operation with this file [s]."""
        return self._clock.monotonic() - self._began_s

    def _execute(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement, values)


def _age(now_s: float, at_s: float) -> float:
    return max(0.0, now_s - at_s)
