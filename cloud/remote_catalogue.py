"""A catalogue of a running cloud, worked on over the network: the training is done there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from nearsight.cloud.access import BatchOutcome
from nearsight.cloud.store import CatalogueInfo, RemoveOutcome, StoredObject
from nearsight.cloud.training import NewObject, Rejection, SkippedImage
from nearsight.common.errors import InternalError, NotFound, Overloaded
from nearsight.common.rpc.client import Channel, Stub
from nearsight.protos import catalogue_pb2 as pb

MAX_OBJECT_BYTES = 48 * 2**20
"""Images of one object beyond this do not fit into one message."""

BACK_OFF_S = (0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0)
"""Pauses before objects are sent again to a cloud that is overloaded."""

R = TypeVar("R", bound=Message)


class RemoteCatalogue:
    """See `CatalogueAccess`.

    Parameters
    ----------
    channel : Channel
        To the cloud; the caller closes it.
    catalogue : str
        Empty: the only one there is.
    timeout_s : float
        For each call.
    pause : callable
        How to wait for some seconds; tests do not.
    """

    def __init__(
        self,
        channel: Channel,
        catalogue: str,
        *,
        timeout_s: float = 60.0,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._stub = Stub(channel, pb.DESCRIPTOR.services_by_name["Catalogue"])
        self.name = catalogue
        self._timeout_s = timeout_s
        self._pause = pause

    def catalogues(self) -> tuple[CatalogueInfo, ...]:  # noqa: D102
        listed = self._call("list_catalogues", pb.ListCataloguesRequest(), pb.ListCataloguesResponse)
        return tuple(CatalogueInfo(item.name, item.objects, item.revision) for item in listed.catalogues)

    def objects(self) -> tuple[StoredObject, ...]:
        """What is in the catalogue; ``training`` is empty, the cloud keeps it to itself."""
        listed = self._call("list_objects", pb.ListObjectsRequest(), pb.ListObjectsResponse)
        return tuple(
            StoredObject(
                item.object_id, item.label, item.version, item.views, item.model_bytes, item.content_hash, ""
            )
            for item in listed.objects
        )

    def stored(self) -> Mapping[str, str]:  # noqa: D102
        try:
            objects = self.objects()
        except NotFound:
            return {}
        return {item.object_id: item.content_hash for item in objects if item.content_hash}

    def put(self, objects: Sequence[NewObject]) -> BatchOutcome:
        """Send objects to be trained; sent again for a while if the cloud is overloaded.

        Raises
        ------
        NearsightError
            If the cloud cannot be reached, refuses, or stays overloaded.
        """
        fitting = [item for item in objects if sum(map(len, item.images)) <= MAX_OBJECT_BYTES]
        reason = f"its images have more than {MAX_OBJECT_BYTES} bytes in all: too much for one message"
        too_large = tuple(Rejection(item.object_id, reason) for item in objects if item not in fitting)
        if not fitting:
            return BatchOutcome(rejected=too_large)
        added = self._add(fitting, index_later=True)
        return BatchOutcome(
            tuple(added.added),
            tuple(added.replaced),
            tuple(added.unchanged),
            tuple(Rejection(item.object_id, item.reason) for item in added.rejected) + too_large,
            tuple(SkippedImage(item.object_id, item.image, item.reason) for item in added.skipped),
        )

    def finish(self) -> None:
        """Return when everything that was put is recognised."""
        try:
            self._add((), index_later=False)
        except NotFound:
            return  # every object was rejected, and the catalogue never began

    def remove(self, object_ids: Sequence[str]) -> RemoveOutcome:  # noqa: D102
        request = pb.RemoveObjectsRequest(object_ids=object_ids)
        removed = self._call("remove_objects", request, pb.RemoveObjectsResponse)
        return RemoveOutcome(tuple(removed.removed), tuple(removed.missing), removed.revision)

    def _add(self, objects: Sequence[NewObject], *, index_later: bool) -> pb.AddObjectsResponse:
        request = pb.AddObjectsRequest(
            objects=[
                pb.NewObject(
                    object_id=item.object_id,
                    label=item.label,
                    metadata=dict(item.metadata),
                    images=len(item.images),
                )
                for item in objects
            ],
            index_later=index_later,
        )
        blobs = [image for item in objects for image in item.images]
        for pause_s in BACK_OFF_S:
            try:
                return self._call("add_objects", request, pb.AddObjectsResponse, blobs)
            except Overloaded:
                self._pause(pause_s)
        return self._call("add_objects", request, pb.AddObjectsResponse, blobs)

    def _call(
        self, method: str, request: Message, expected: type[R], blobs: Sequence[bytes | memoryview] = ()
    ) -> R:
        call: Any = getattr(self._stub, method)
        message = call(request, timeout_s=self._timeout_s, blobs=blobs, catalogue=self.name).message
        if not isinstance(message, expected):
            raise InternalError(f"{method} answered with a {type(message).__name__}")
        return message
