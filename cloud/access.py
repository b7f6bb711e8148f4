"""Access to a catalogue for a user: in a database file, or in a running cloud over the network.

`DatabaseCatalogue` and `RemoteCatalogue` have the same methods, so that `nearsight cloud` treats both alike.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.schema import FORMAT
from nearsight.common.catalogue.store import (
    CatalogueInfo,
    CatalogueStore,
    PutOutcome,
    RemoveOutcome,
    StoredObject,
)
from nearsight.common.catalogue.training import NewObject, Rejection, SkippedImage
from nearsight.common.database.files import copy_database
from nearsight.common.database.places import put_in_place, real_file
from nearsight.common.errors import ConfigurationError, NotFound, Overloaded
from nearsight.common.rpc.client import Channel, Method, Stub
from nearsight.common.rpc.security import client_security
from nearsight.protos import catalogue_pb2 as pb

MAX_OBJECT_BYTES = 48 * 2**20
"""Limit of the total size of one object's images [bytes]; more does not fit into one message."""

BACK_OFF_S = (0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0)
"""Back-off before objects are sent again to an overloaded cloud [s]."""

_LIST_S, _CHANGE_S = 60.0, 1800.0
"""Timeouts of calls that list, and of changes, which wait for the next index of the catalogue. Building it
takes a minute for 5,000 objects. A cloud that is gone is noticed earlier (`ChannelSettings.heartbeat_s`)."""


def shell_channel(endpoint: str, key: Path | None, server_key: str | None) -> Channel:
    """A channel of a command to a daemon, which the caller closes."""
    return Channel(endpoint, client_id=f"shell-{os.getpid()}", security=client_security(key, server_key))


class RemoteCatalogue:
    """A catalogue of a running cloud, over the network. The cloud trains the objects.

    Parameters
    ----------
    channel : Channel
        Connection to the cloud; the caller closes it.
    catalogue : str
        Name; empty for the only catalogue of the cloud.
    """

    def __init__(self, channel: Channel, catalogue: str) -> None:
        self._stub = Stub(channel, pb.DESCRIPTOR.services_by_name["Catalogue"])
        self._name = catalogue

    def catalogues(self) -> tuple[CatalogueInfo, ...]:
        """All catalogues of the cloud."""
        request = pb.ListCataloguesRequest()
        listed: pb.ListCataloguesResponse = self._call(self._stub.list_catalogues, request)
        return tuple(CatalogueInfo(item.name, item.objects, item.revision) for item in listed.catalogues)

    def objects(self) -> tuple[StoredObject, ...]:
        """All objects of the catalogue. Their ``training`` is empty, because the cloud does not send it."""
        listed: pb.ListObjectsResponse = self._call(self._stub.list_objects, pb.ListObjectsRequest())
        return tuple(
            StoredObject(
                item.object_id, item.label, item.version, item.views, item.model_bytes, item.content_hash, ""
            )
            for item in listed.objects
        )

    def stored(self) -> Mapping[str, str]:
        """Content hashes by id of objects that need not be sent again; empty without such a catalogue."""
        try:
            return {item.object_id: item.content_hash for item in self.objects() if item.content_hash}
        except NotFound:
            return {}

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        """Send objects to be trained. While the cloud is overloaded, retry with back-off.

        Raises
        ------
        NearsightError
            If the cloud is unreachable, rejects the request, or stays overloaded.
        """
        fitting = [item for item in objects if sum(map(len, item.images)) <= MAX_OBJECT_BYTES]
        reason = f"its images have more than {MAX_OBJECT_BYTES} bytes in all: too much for one message"
        too_large = tuple(Rejection(item.object_id, reason) for item in objects if item not in fitting)
        if not fitting:
            return PutOutcome(rejected=too_large)
        added = self._add(fitting, index_later=True, allow_similar=allow_similar)
        return PutOutcome(
            tuple(added.added),
            tuple(added.replaced),
            tuple(added.unchanged),
            added.revision,
            tuple(Rejection(item.object_id, item.reason, item.twin) for item in added.rejected) + too_large,
            tuple(SkippedImage(item.object_id, item.image, item.reason) for item in added.skipped),
        )

    def finish(self) -> None:
        """Return when all objects that were put are recognised."""
        try:
            self._add((), index_later=False)
        except NotFound:
            return  # every object was rejected, so the catalogue was not created

    def remove(self, object_ids: Sequence[str]) -> RemoveOutcome:
        """Remove objects."""
        request = pb.RemoveObjectsRequest(object_ids=object_ids)
        removed: pb.RemoveObjectsResponse = self._call(
            self._stub.remove_objects, request, timeout_s=_CHANGE_S
        )
        return RemoveOutcome(tuple(removed.removed), tuple(removed.missing), removed.revision)

    def remove_catalogue(self) -> int:
        """Remove the catalogue, which must have a name here; return its number of objects."""
        request = pb.RemoveCatalogueRequest()
        removed: pb.RemoveCatalogueResponse = self._call(
            self._stub.remove_catalogue, request, timeout_s=_CHANGE_S
        )
        return removed.objects

    def _add(
        self, objects: Sequence[NewObject], *, index_later: bool, allow_similar: bool = False
    ) -> pb.AddObjectsResponse:
        messages = [
            pb.NewObject(
                object_id=item.object_id,
                label=item.label,
                metadata=dict(item.metadata),
                images=len(item.images),
            )
            for item in objects
        ]
        request = pb.AddObjectsRequest(objects=messages, index_later=index_later, allow_similar=allow_similar)
        blobs = [image for item in objects for image in item.images]
        added: pb.AddObjectsResponse
        for pause_s in BACK_OFF_S:
            try:
                added = self._call(self._stub.add_objects, request, blobs, timeout_s=_CHANGE_S)
            except Overloaded:
                time.sleep(pause_s)
            else:
                return added
        added = self._call(self._stub.add_objects, request, blobs, timeout_s=_CHANGE_S)
        return added

    def _call(
        self,
        method: Method,
        request: Message,
        blobs: Sequence[bytes | memoryview] = (),
        *,
        timeout_s: float = _LIST_S,
    ) -> Any:
        return method(request, timeout_s=timeout_s, blobs=blobs, catalogue=self._name).message


CatalogueAccess = DatabaseCatalogue | RemoteCatalogue
"""A catalogue in a database file or in a running cloud."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of `restore`: the content of the backup, and the file of the former database."""

    catalogues: int
    """Number of catalogues."""
    objects: int
    """Number of objects in all catalogues."""
    damaged: tuple[str, ...]
    """Objects whose models cannot be read, as ``CATALOGUE/ID``."""
    replaced: Path | None
    """File of the former database; None if there was none."""


def restore(backup: Path, database: Path) -> Restored:
    """Replace ``database`` by a copy of ``backup``; the former database is kept under another name.

    Raises
    ------
    NotFound, CorruptStore
        If the backup does not exist, is damaged or has a newer format. Then nothing changes.
    ConfigurationError
        If a process uses the database, or the disk cannot be written.
    """
    database = real_file(database)  # a symbolic link stays a link
    if database.is_dir():
        raise ConfigurationError(f"{database} is a folder", advice=f"name a file, such as {FORMAT.example}")
    if not database.parent.is_dir():
        raise ConfigurationError(
            f"there is no folder {database.parent}", advice=f"mkdir -p {database.parent}"
        )
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=".restore-") as folder:
        new = Path(folder) / database.name
        copy_database(backup, new, FORMAT)
        with CatalogueStore(new, create=False) as store:
            known = store.catalogues()
            names = {info.name: sorted(store.damaged(info.name)) for info in known}
        replaced = put_in_place(new, database)
    damaged = tuple(f"{catalogue}/{name}" for catalogue in names for name in names[catalogue])
    return Restored(len(known), sum(info.objects for info in known), damaged, replaced)
