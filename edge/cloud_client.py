"""Client of the cloud: the calls of the edge, and the conversion of their responses.

Device requests and background work use two connections. Thus a batch of object models never delays the
response to a waiting device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.protos import catalogue_pb2, inference_pb2, recognition_pb2
from nearsight.protos.catalogue_pb2 import (
    CatalogueSummary,
    GetObjectModelsRequest,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
)
from nearsight.protos.inference_pb2 import GetModelChunkRequest, ListModelsRequest

A = TypeVar("A")


class CloudClient:
    """Calls to the cloud. All return at once, with a future that fails with a `NearsightError`.

    These errors are from the cloud's point of view; see `error_of_cloud`.

    Parameters
    ----------
    requests, background : Channel
        Connections for device requests and for everything else.
    """

    def __init__(self, requests: Channel, background: Channel) -> None:
        self._channels = (requests, background)
        self.recognition = Stub(requests, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        """The Recognition service, for device requests."""
        self.inference = Stub(requests, inference_pb2.DESCRIPTOR.services_by_name["Inference"])
        """The Inference service, for device requests."""
        self._catalogue = Stub(background, catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"])
        self._models = Stub(background, inference_pb2.DESCRIPTOR.services_by_name["Models"])

    def list_catalogues(self, timeout_s: float) -> Future[Reply]:
        """List the catalogues; see `catalogues_of`."""
        return self._catalogue.list_catalogues.future(ListCataloguesRequest(), timeout_s=timeout_s)

    def list_objects(self, catalogue: str, timeout_s: float) -> Future[Reply]:
        """List the objects of a catalogue; see `listing_of`."""
        return self._catalogue.list_objects.future(
            ListObjectsRequest(), timeout_s=timeout_s, catalogue=catalogue
        )

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Fetch object models; see `models_of`."""
        request = GetObjectModelsRequest(object_ids=object_ids)
        return self._catalogue.get_object_models.future(request, timeout_s=timeout_s, catalogue=catalogue)

    def list_models(self, timeout_s: float) -> Future[Reply]:
        """List the networks."""
        return self._models.list_models.future(ListModelsRequest(), timeout_s=timeout_s)

    def get_model_chunk(self, name: str, request: GetModelChunkRequest, timeout_s: float) -> Future[Reply]:
        """Fetch a chunk of a network's file."""
        return self._models.get_model_chunk.future(request, timeout_s=timeout_s, catalogue=name)

    def close(self) -> None:
        """Close both connections; open calls fail."""
        for channel in self._channels:
            channel.close()


def catalogues_of(reply: Reply) -> dict[str, CatalogueSummary]:
    """Catalogues of the cloud, by name."""
    response: ListCataloguesResponse = reply.message
    return {catalogue.name: catalogue for catalogue in response.catalogues}


def error_of_cloud(error: NearsightError) -> NearsightError:
    """The error of a call, from the edge's point of view; without traceback, which refers to the call."""
    match error:
        case Unauthenticated():
            # The device's key is valid; the problem is in the configuration of the edge or the cloud.
            return Unavailable(
                f"the cloud refuses this edge: {error.message}",
                advice="check the keys of the edge's settings",
            )
        case Unavailable():
            return Unavailable(f"the edge cannot reach the cloud: {error.message}", advice=error.advice)
    return error.with_traceback(None)


def when_done(
    future: Future[Reply],
    background: BackgroundWorker,
    read: Callable[[Reply], A],
    do: Callable[[A | NearsightError], None],
) -> None:
    """When the reply arrives, read it and call ``do`` with the result or the error, in the background."""

    def handle() -> None:
        outcome: A | NearsightError
        try:
            outcome = read(future.result())
        except NearsightError as error:
            outcome = error_of_cloud(error)
        do(outcome)

    future.add_done_callback(lambda _: background.submit(handle))
