"""The edge's view of the cloud: the calls it makes, and what their answers mean.

Requests of devices and background work use two connections, so that a batch of models on its way never
stands before the answer that somebody waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.descriptor import MethodDescriptor

from nearsight.common.errors import (
    Cancelled,
    InternalError,
    InvalidMessage,
    NearsightError,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.recognition.codec import object_model_from_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Channel, Reply
from nearsight.protos import catalogue_pb2, recognition_pb2
from nearsight.protos.catalogue_pb2 import (
    GetObjectModelsRequest,
    GetObjectModelsResponse,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
    ListObjectsResponse,
)
from nearsight.protos.recognition_pb2 import RecognizeRequest

Blob = bytes | memoryview
M = TypeVar("M")


def _method(service: str, name: str) -> MethodDescriptor:
    file = recognition_pb2.DESCRIPTOR if service == "Recognition" else catalogue_pb2.DESCRIPTOR
    return file.services_by_name[service].methods_by_name[name]


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one catalogue at one revision: id → version, in the catalogue's order."""

    versions: Mapping[str, int]
    revision: int


@dataclass(frozen=True, slots=True)
class FetchedModels:
    """What came back when models were asked for.

    Attributes
    ----------
    models : tuple of ObjectModel
        The models that came and could be read.
    missing : tuple of str
        Objects that the catalogue does not have (any more).
    unreadable : mapping of str to str
        Objects whose model is malformed, and why.
    left_out : tuple of str
        Objects that did not fit into the answer: ask again.
    revision : int
        Of the catalogue.
    size_bytes : int
        Bytes that came over the network.
    """

    models: tuple[ObjectModel, ...]
    missing: tuple[str, ...]
    unreadable: Mapping[str, str]
    left_out: tuple[str, ...]
    revision: int
    size_bytes: int


class CloudClient:
    """Calls to the cloud. All return at once with a future that fails with a `NearsightError`.

    Parameters
    ----------
    requests, background : Channel
        Connections for requests of devices and for everything else.
    """

    def __init__(self, requests: Channel, background: Channel) -> None:
        self._requests = requests
        self._background = background

    def recognize(
        self,
        request: RecognizeRequest,
        blobs: Sequence[Blob],
        *,
        timeout_s: float,
        catalogue: str,
        trace_id: str,
        client_id: str,
    ) -> Future[Reply]:
        """Ask what an image shows, on behalf of a device."""
        return self._requests.call(
            _method("Recognition", "Recognize"),
            request,
            timeout_s=timeout_s,
            blobs=blobs,
            catalogue=catalogue,
            trace_id=trace_id,
            client_id=client_id,
        )

    def list_catalogues(self, timeout_s: float) -> Future[Reply]:
        """Ask which catalogues there are: see `revisions_of`."""
        return self._background.call(
            _method("Catalogue", "ListCatalogues"), ListCataloguesRequest(), timeout_s=timeout_s
        )

    def list_objects(self, catalogue: str, timeout_s: float) -> Future[Reply]:
        """Ask which objects a catalogue has: see `listing_of`."""
        return self._background.call(
            _method("Catalogue", "ListObjects"),
            ListObjectsRequest(),
            timeout_s=timeout_s,
            catalogue=catalogue,
        )

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Ask for object models: see `models_of`."""
        return self._background.call(
            _method("Catalogue", "GetObjectModels"),
            GetObjectModelsRequest(object_ids=object_ids),
            timeout_s=timeout_s,
            catalogue=catalogue,
        )

    def close(self) -> None:
        """Close both connections; open calls fail."""
        self._requests.close()
        self._background.close()


def revisions_of(reply: Reply) -> dict[str, int]:
    """Catalogue → revision."""
    response = _message(reply, ListCataloguesResponse)
    return {catalogue.name: catalogue.revision for catalogue in response.catalogues}


def listing_of(reply: Reply) -> Listing:
    """The objects of a catalogue."""
    response = _message(reply, ListObjectsResponse)
    return Listing({entry.object_id: entry.version for entry in response.objects}, response.revision)


def models_of(reply: Reply, asked: Sequence[str]) -> FetchedModels:
    """The models in an answer; one that is malformed does not spoil the others."""
    response = _message(reply, GetObjectModelsResponse)
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


def outcome_of(future: Future[Reply]) -> Reply | NearsightError:
    """The reply of a call that is done, or why there is none, told from the edge's point of view."""
    if future.cancelled():
        return Unavailable("the edge is stopping")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Unauthenticated):
        # The device's key is fine: it is between edge and cloud that something must be set up.
        return Unavailable(
            f"the cloud refuses this edge: {error.message}", advice="check the keys of the edge's settings"
        )
    if isinstance(error, Cancelled):
        return Unavailable("the edge is stopping")
    if isinstance(error, Unavailable):
        return Unavailable(f"the edge cannot reach the cloud: {error.message}", advice=error.advice)
    if isinstance(error, NearsightError):
        return error
    return InternalError(f"the call to the cloud failed unexpectedly: {type(error).__name__}")


def when_done(future: Future[Reply], do: Callable[[Reply | NearsightError], None]) -> None:
    """Call ``do`` with the outcome as soon as there is one, in whatever thread that happens."""
    future.add_done_callback(lambda done: do(outcome_of(done)))


def _message(reply: Reply, kind: type[M]) -> M:
    if not isinstance(reply.message, kind):
        raise InvalidMessage(f"the cloud answered with {type(reply.message).__name__}, not {kind.__name__}")
    return reply.message
