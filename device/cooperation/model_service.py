"""The Catalogue service of a device for its peers: the models that it holds, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.recognition.codec import object_model_to_proto
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.cooperation.account import Accountant
from nearsight.device.held_models import HeldModels
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.presence_service import caller_of
from nearsight.protos import catalogue_pb2
from nearsight.protos.catalogue_pb2 import (
    AddObjectsRequest,
    AddObjectsResponse,
    GetObjectModelsRequest,
    GetObjectModelsResponse,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
    ListObjectsResponse,
    RemoveObjectsRequest,
    RemoveObjectsResponse,
)

MOST_MODELS = 16
"""In one request."""


class PeerModelService(Service):
    """Hands out models. A peer does not list a catalogue: who asks has that from a tier, which is believed.

    Parameters
    ----------
    catalogue : str
        The only one.
    held : HeldModels
        What this device has.
    accountant : Accountant
        Told what was handed out.
    traffic : callable
        Told of every answer: which node asked, bytes sent to and received from it.
    """

    descriptor: ClassVar[ServiceDescriptor] = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(
        self,
        catalogue: str,
        held: HeldModels,
        accountant: Accountant,
        traffic: Callable[[NodeId, int, int], None],
    ) -> None:
        self._catalogue = catalogue
        self._held = held
        self._accountant = accountant
        self._traffic = traffic

    def get_object_models(
        self, request: GetObjectModelsRequest, context: CallContext
    ) -> GetObjectModelsResponse:
        """The models that are held, of those that are asked for."""
        if context.catalogue != self._catalogue:
            raise NotFound(f"this device holds models of {self._catalogue!r}, not {context.catalogue!r}")
        if len(request.object_ids) > MOST_MODELS:
            raise InvalidArgument(f"{len(request.object_ids)} ids in one call, the limit is {MOST_MODELS}")
        response = GetObjectModelsResponse()
        for object_id in dict.fromkeys(request.object_ids):
            model = self._held.peek(object_id)
            if model is None:
                response.missing.append(object_id)
                continue
            message, blobs = object_model_to_proto(model, len(context.response_blobs))
            response.models.append(message)
            context.response_blobs.extend(blobs)
            size_bytes = message.ByteSize() + sum(map(len, blobs))
            self._accountant.add(served_models=1, served_bytes=size_bytes)
        sent_bytes = response.ByteSize() + sum(map(len, context.response_blobs))
        self._traffic(caller_of(context), sent_bytes, request.ByteSize())
        return response

    def list_objects(self, request: ListObjectsRequest, context: CallContext) -> ListObjectsResponse:
        """Refuse."""
        del request, context
        _refuse()

    def list_catalogues(self, request: ListCataloguesRequest, context: CallContext) -> ListCataloguesResponse:
        """Refuse."""
        del request, context
        _refuse()

    def add_objects(self, request: AddObjectsRequest, context: CallContext) -> AddObjectsResponse:
        """Refuse."""
        del request, context
        _refuse()

    def remove_objects(self, request: RemoveObjectsRequest, context: CallContext) -> RemoveObjectsResponse:
        """Refuse."""
        del request, context
        _refuse()


def _refuse() -> NoReturn:
    raise InvalidArgument("a device hands out models, no more", advice="ask an edge or the cloud")
