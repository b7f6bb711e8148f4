"""The database file of the cloud; how it is opened is told in `nearsight.common.operation.database`."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from nearsight.common.errors import CorruptStore
from nearsight.common.operation import database as database_file
from nearsight.common.operation.database import DatabaseFormat

_SCHEMA = """
CREATE TABLE catalogues (
    name TEXT PRIMARY KEY NOT NULL,
    revision INTEGER NOT NULL            -- grows by one with every committed change
) WITHOUT ROWID;
CREATE TABLE objects (
    catalogue TEXT NOT NULL REFERENCES catalogues (name),
    object_id TEXT NOT NULL,
    revision INTEGER NOT NULL,           -- of the catalogue, when this object was last written
    version INTEGER NOT NULL,
    label TEXT NOT NULL,
    views INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    training TEXT NOT NULL,
    model BLOB NOT NULL,
    PRIMARY KEY (catalogue, object_id)
);
CREATE INDEX objects_by_revision ON objects (catalogue, revision);
CREATE TABLE removed_objects (           -- so that an id that comes back gets a new version
    catalogue TEXT NOT NULL REFERENCES catalogues (name),
    object_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (catalogue, object_id)
) WITHOUT ROWID;
"""

FORMAT = DatabaseFormat(
    application_id=0x4E53_4344,  # "NSCD"
    schema_version=1,
    schema=_SCHEMA,
    example="cloud.db",
    begin_advice="check the path, or ingest a folder of images first",
    recover_advice="nothing was changed: restore a backup, or move it away and ingest again",
)


def open_database(path: Path, *, create: bool) -> sqlite3.Connection:
    """See `nearsight.common.operation.database.open_database`."""
    return database_file.open_database(path, FORMAT, create=create)


def corrupt(path: Path, reason: str, advice: str = "") -> CorruptStore:
    """See `nearsight.common.operation.database.corrupt`."""
    return database_file.corrupt(path, FORMAT, reason, advice)


def translated_errors(path: Path) -> AbstractContextManager[None]:
    """See `nearsight.common.operation.database.translated_errors`."""
    return database_file.translated_errors(path, FORMAT)
