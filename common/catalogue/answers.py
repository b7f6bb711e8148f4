"""Validated responses of a Catalogue service, of any tier: listings and object models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nearsight.common.errors import InvalidMessage
from nearsight.common.recognition.codec import (
    DIGEST_BYTES,
    Blob,
    object_model_from_proto,
    object_model_to_proto,
)
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.call import Reply
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ListObjectsResponse, ObjectSummary


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one catalogue at one revision."""

    versions: Mapping[str, int]
    """Id → version, in the catalogue's order."""
    revision: int
    """Revision of the catalogue."""
    entries: tuple[ObjectSummary, ...] = ()
    """The received entries, for forwarding the listing."""
    size_bytes: int = 0
    """Size of the response [bytes]."""

    @property
    def digests(self) -> Mapping[str, bytes]:
        """Id → digest of the model in the listed version; objects without a valid digest are left out."""
        return {
            entry.object_id: entry.model_digest
            for entry in self.entries
            if len(entry.model_digest) == DIGEST_BYTES
        }

    def contradicts(self, other: Listing) -> bool:
        """Whether both listings have different models for the same version of an object.

        If so, they are listings of different catalogues.
        """
        theirs = other.digests
        return any(
            theirs.get(name, digest) != digest and other.versions.get(name) == self.versions[name]
            for name, digest in self.digests.items()
        )


@dataclass(frozen=True, slots=True)
class FetchedModels:
    """Result of a request for object models."""

    models: tuple[ObjectModel, ...]
    """Models that were received and decoded."""
    missing: tuple[str, ...]
    """Objects that the catalogue does not have, or no longer has."""
    unreadable: Mapping[str, str]
    """Objects whose model is malformed, with the reason."""
    left_out: tuple[str, ...]
    """Objects whose models exceeded the size limit of the response; request them again."""
    revision: int
    """Revision of the catalogue."""
    size_bytes: int
    """Size of the response [bytes]."""


def listing_of(reply: Reply) -> Listing:
    """Decode a response of ListObjects."""
    response: ListObjectsResponse = reply.message
    versions = {entry.object_id: entry.version for entry in response.objects}
    return Listing(versions, response.revision, tuple(response.objects), reply.received_bytes)


def models_of(reply: Reply, requested: Sequence[str]) -> FetchedModels:
    """Decode a response of GetObjectModels; a malformed model does not affect the others.

    Parameters
    ----------
    reply : Reply
        The response.
    requested : sequence of str
        The object ids that were requested; other models in the response are ignored.
    """
    response: GetObjectModelsResponse = reply.message
    models: dict[str, ObjectModel] = {}
    unreadable: dict[str, str] = {}
    for message in response.models:
        if message.object_id not in requested:
            continue
        try:
            models[message.object_id] = object_model_from_proto(message, reply.blobs)
        except InvalidMessage as error:
            unreadable[message.object_id] = error.message
    left_out = tuple(name for name in response.left_out if name in requested and name not in models)
    missing = tuple(name for name in requested if name not in {*models, *unreadable, *left_out})
    return FetchedModels(
        tuple(models.values()), missing, unreadable, left_out, response.revision, reply.received_bytes
    )


def add_models(
    response: GetObjectModelsResponse, blobs: list[Blob], models: Iterable[ObjectModel], room_bytes: int
) -> None:
    """Add models with blobs to a response up to ``room_bytes`` (at least one); list the rest as left out."""
    for model in models:
        if response.left_out or (response.models and model.size_bytes > room_bytes):
            response.left_out.append(model.object_id)
            continue
        message, added = object_model_to_proto(model, len(blobs))
        response.models.append(message)
        blobs += added
        room_bytes -= message.ByteSize() + sum(map(len, added))
