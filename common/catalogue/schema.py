"""The tables of a catalogue database, version by version.

Each change of the tables is a further step at the end. Files of older versions are upgraded by the missing
steps, so a released step is never edited.
"""

from __future__ import annotations

from nearsight.common.database.files import DatabaseFormat

_VERSION_1 = """
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

_VERSION_2 = """
ALTER TABLE catalogues ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE log (                       -- who changed what, for the operator
    number INTEGER PRIMARY KEY,
    time_s REAL NOT NULL,                -- seconds since 1970
    author TEXT NOT NULL,                -- name of the key
    public_key TEXT NOT NULL,            -- empty without keys
    catalogue TEXT NOT NULL,
    revision INTEGER NOT NULL,
    action TEXT NOT NULL,
    object_id TEXT NOT NULL              -- empty: the catalogue itself
);
"""

FORMAT = DatabaseFormat(
    application_id=0x4E53_4344,  # "NSCD"
    versions=(_VERSION_1, _VERSION_2),
    example="cloud.db",
    begin_advice="check the path; `nearsight cloud ingest FOLDER --catalogue NAME` creates one, "
    "and `nearsight cloud --create` an empty one",
    recover_advice="nothing was changed: `nearsight cloud restore BACKUP`, or move it away and ingest again",
)
