"""What a Catalogue service answers, checked: listings and object models, wherever they are fetched from."""

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
from nearsight.common.rpc.call import Reply, message_of
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ListObjectsResponse, ObjectSummary


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one catalogue at one revision."""

    versions: Mapping[str, int]
    """Id → version, in the catalogue's order."""
    revision: int
    """Of the catalogue."""
    entries: tuple[ObjectSummary, ...] = ()
    """The listing as it came, for passing it on."""
    size_bytes: int = 0
    """Bytes that came over the network."""

    @property
    def digests(self) -> Mapping[str, bytes]:
        """Id → digest of the model in the version listed; objects without one are left out."""
        return {
            entry.object_id: entry.model_digest
            for entry in self.entries
            if len(entry.model_digest) == DIGEST_BYTES
        }

    def contradicts(self, other: Listing) -> bool:
        """Whether a version of an object is another model there: then it is another catalogue."""
        theirs = other.digests
        return any(
            theirs.get(name, digest) != digest and other.versions.get(name) == self.versions[name]
            for name, digest in self.digests.items()
        )


@dataclass(frozen=True, slots=True)
class FetchedModels:
    """What came back when models were asked for."""

    models: tuple[ObjectModel, ...]
    """The models that came and could be read."""
    missing: tuple[str, ...]
    """Objects that the catalogue does not have (any more)."""
    unreadable: Mapping[str, str]
    """Objects whose model is malformed, and why."""
    left_out: tuple[str, ...]
    """Objects that did not fit into the answer: ask again."""
    revision: int
    """Of the catalogue."""
    size_bytes: int
    """Bytes that came over the network."""


def listing_of(reply: Reply) -> Listing:
    """The objects of a catalogue."""
    response = message_of(reply, ListObjectsResponse)
    versions = {entry.object_id: entry.version for entry in response.objects}
    return Listing(versions, response.revision, tuple(response.objects), reply.received_bytes)


def models_of(reply: Reply, asked: Sequence[str]) -> FetchedModels:
    """The models in an answer; one that is malformed does not spoil the others."""
    response = message_of(reply, GetObjectModelsResponse)
    models: dict[str, ObjectModel] = {}
    unreadable: dict[str, str] = {}
    for message in response.models:
        if message.object_id not in asked:
            continue
        try:
            models[message.object_id] = object_model_from_proto(message, reply.blobs)
        except InvalidMessage as error:
            unreadable[message.object_id] = error.message
    left_out = tuple(name for name in response.left_out if name in asked and name not in models)
    missing = tuple(name for name in asked if name not in {*models, *unreadable, *left_out})
    return FetchedModels(
        tuple(models.values()), missing, unreadable, left_out, response.revision, reply.received_bytes
    )


def add_models(
    response: GetObjectModelsResponse, blobs: list[Blob], models: Iterable[ObjectModel], room_bytes: int
) -> None:
    """Put models and their blobs into an answer while there is room, at least one; name the others in it."""
    for model in models:
        if response.left_out or (response.models and model.size_bytes > room_bytes):
            response.left_out.append(model.object_id)
            continue
        message, added = object_model_to_proto(model, len(blobs))
        response.models.append(message)
        blobs += added
        room_bytes -= message.ByteSize() + sum(map(len, added))
