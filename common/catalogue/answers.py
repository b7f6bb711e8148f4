"""Validated responses of a Catalogue service, of any tier: listings and object models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.recognition.codec import (
    DIGEST_BYTES,
    Blob,
    model_digest,
    object_model_from_proto,
    object_model_to_proto,
)
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.call import Reply
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ListObjectsResponse, ObjectSummary

MAX_IDS = 10_000
"""Limit of ids in one request."""


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

    @classmethod
    def of(cls, response: ListObjectsResponse, size_bytes: int = 0) -> Self:
        """The listing of a response of this size."""
        versions = {entry.object_id: entry.version for entry in response.objects}
        return cls(versions, response.revision, tuple(response.objects), size_bytes)

    @property
    def digests(self) -> Mapping[str, bytes]:
        """Id → digest of the model in the listed version; objects without a valid digest are left out."""
        return {
            entry.object_id: entry.model_digest
            for entry in self.entries
            if len(entry.model_digest) == DIGEST_BYTES
        }

    def outdated(self, models: Iterable[ObjectModel]) -> set[ObjectModel]:
        """The models whose object is not listed, or is listed with another version or digest.

        The digest counts because a catalogue of this name in a new database numbers the versions anew. It
        takes 0.3 ms per model.
        """
        digests = self.digests
        return {
            model
            for model in models
            if self.versions.get(model.object_id) != model.version
            or (model.object_id in digests and digests[model.object_id] != model_digest(model))
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
    size_bytes: int = 0
    """Size of the response [bytes]."""


def checked_ids(object_ids: Sequence[str]) -> tuple[str, ...]:
    """The distinct ids of a request.

    Raises
    ------
    InvalidArgument
        If there are too many.
    """
    if len(object_ids) > MAX_IDS:
        raise InvalidArgument(f"{len(object_ids)} ids in one call, the limit is {MAX_IDS}")
    return tuple(dict.fromkeys(object_ids))


def listing_of(reply: Reply) -> Listing:
    """Decode a response of ListObjects."""
    return Listing.of(reply.message, reply.received_bytes)


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
