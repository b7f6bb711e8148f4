"""The file of the standbys: an edge that starts during an outage of the cloud answers from this file.

It is separate from the learnt state, because it is a thousand times as large, and its loss only costs a
download. Therefore a damaged file is set aside and replaced by an empty one, and models that cannot be
written are kept only in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from google.protobuf.message import DecodeError

from nearsight.common.catalogue.answers import Listing
from nearsight.common.database.database_file import DatabaseFile
from nearsight.common.errors import CorruptStore
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import model_digest, object_model_from_bytes, object_model_to_bytes
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.renewable_file import open_or_replace, renewable_format
from nearsight.protos.catalogue_pb2 import ListObjectsResponse

_VERSION_1 = """
CREATE TABLE listings (
    catalogue TEXT PRIMARY KEY NOT NULL,
    listing BLOB NOT NULL                -- a ListObjectsResponse
) WITHOUT ROWID;
CREATE TABLE models (
    catalogue TEXT NOT NULL,
    object_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    model BLOB NOT NULL,
    PRIMARY KEY (catalogue, object_id)
);
"""

FORMAT = renewable_format(0x4E53_5342, (_VERSION_1,), "edge-standby.db", named_by_user=False)  # "NSSB"


class StandbyStore(DatabaseFile):
    """The file; for one process, and thread-safe.

    Parameters
    ----------
    path : Path
        Created if it does not exist.

    Raises
    ------
    CorruptStore, ForeignStore, Overloaded, ConfigurationError
        As in `StateStore`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, FORMAT, create=True, or_read_only=True)

    @classmethod
    def beside(cls, state: Path) -> Self:
        """The file beside the state file; a damaged one is set aside and replaced by an empty one."""
        path = state.with_name(f"{state.stem}-standby{state.suffix}")
        return open_or_replace(path, cls)[0]

    def listings(self) -> dict[str, Listing]:
        """Last listing of each catalogue; damaged listings are omitted."""
        found = {}
        for catalogue, content in self.rows("SELECT catalogue, listing FROM listings"):
            with suppress(DecodeError):
                found[catalogue] = Listing.of(ListObjectsResponse.FromString(content))
        return found

    def versions(self, catalogue: str) -> dict[str, int]:
        """Versions of the stored models, by object."""
        return dict(self.rows("SELECT object_id, version FROM models WHERE catalogue = ?", catalogue))

    def models(self, catalogue: str, listing: Listing) -> Iterator[ObjectModel]:
        """Stored models with the same digest as in this listing; damaged models are omitted."""
        digests = listing.digests
        query = "SELECT object_id, model FROM models WHERE catalogue = ?"
        for object_id, content in self.rows(query, catalogue):
            try:
                model = object_model_from_bytes(content)
            except CorruptStore as error:
                get_logger("standby").warning(
                    "a damaged model is omitted", catalogue=catalogue, error=str(error)
                )
                continue
            if object_id == model.object_id and digests.get(object_id) == model_digest(model):
                yield model

    def write(
        self, catalogue: str, listing: Listing | None, put: Iterable[ObjectModel], removed: Collection[str]
    ) -> None:
        """Write the changes in one transaction; ``listing`` is None if it has not changed.

        Raises
        ------
        Unavailable, CorruptStore, Overloaded
            If the file cannot be written.
        """
        with self.transaction() as connection:
            if listing is not None:
                content = ListObjectsResponse(objects=listing.entries, revision=listing.revision)
                row = (catalogue, content.SerializeToString())
                connection.execute("INSERT OR REPLACE INTO listings VALUES (?, ?)", row)
            connection.executemany(
                "INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)",
                ((catalogue, one.object_id, one.version, object_model_to_bytes(one)) for one in put),
            )
            connection.executemany(
                "DELETE FROM models WHERE catalogue = ? AND object_id = ?",
                [(catalogue, name) for name in removed],
            )

    def remove(self, catalogue: str) -> None:
        """Delete all data of a catalogue.

        Raises
        ------
        Unavailable, CorruptStore, Overloaded
            If the file cannot be written.
        """
        with self.transaction() as connection:
            for table in ("listings", "models"):
                connection.execute(f"DELETE FROM {table} WHERE catalogue = ?", (catalogue,))
