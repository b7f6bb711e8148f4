"""Services for devices that prefetch: object models, from the edge or the cloud, and predicted objects."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import flat, then
from nearsight.common.catalogue.answers import FetchedModels, add_models, checked_ids
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.object_cache.next_objects import NextObjects, next_objects_to_proto
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.load import LoadControl
from nearsight.protos import catalogue_pb2, inference_pb2, prediction_pb2
from nearsight.protos.catalogue_pb2 import (
    GetObjectModelsRequest,
    GetObjectModelsResponse,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
    ListObjectsResponse,
)
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest, GetNextObjectsResponse


@dataclass(eq=False)
class EdgeCatalogueService(Service):
    """The Catalogue service of the edge, which is read-only."""

    descriptor: ClassVar[ServiceDescriptor] = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]
    own_worker: ClassVar[bool] = True  # a long queue makes models more urgent for devices: decision 034

    caches: CatalogueCaches
    """The recognition caches, which hold and fetch models."""
    max_response_bytes: int
    """Limit of the models in a response; ids of omitted models are listed."""

    def get_object_models(
        self, request: GetObjectModelsRequest, context: CallContext
    ) -> Future[GetObjectModelsResponse]:
        """Models of the revision of this edge, in the order of the request; see `ModelSupply`."""
        wanted = checked_ids(request.object_ids)
        answers = then(
            self.caches.admit(context.catalogue),
            lambda cache: cache.supply.for_device(wanted, context.deadline.remaining_s()),
        )

        def respond(answer: FetchedModels) -> GetObjectModelsResponse:
            response = GetObjectModelsResponse(revision=answer.revision, missing=answer.missing)
            add_models(response, context.response_blobs, answer.models, self.max_response_bytes)
            response.left_out.extend(answer.left_out)
            return response

        return then(flat(answers), respond)

    def list_objects(self, request: ListObjectsRequest, context: CallContext) -> Future[ListObjectsResponse]:
        """All objects of the catalogue, from the cloud's last listing."""
        del request

        def respond(cache: CatalogueCache) -> ListObjectsResponse:
            listing = cache.listing
            return ListObjectsResponse(objects=listing.entries, revision=listing.revision)

        return then(self.caches.admit(context.catalogue), respond)

    def list_catalogues(self, request: ListCataloguesRequest, context: CallContext) -> ListCataloguesResponse:
        """Catalogues that the caller may use; see `CatalogueCaches.known`."""
        del request
        known = self.caches.known()
        names = filter(context.caller.sees, sorted(known))
        return ListCataloguesResponse(catalogues=[known[name] for name in names])

    def refuse(self, request: Message, context: CallContext) -> Message:
        """Reject the call, because an edge has only copies."""
        del request, context
        raise InvalidArgument("an edge does not change catalogues", advice="ask the cloud")

    add_objects = remove_objects = remove_catalogue = refuse


class EdgeNetworkIntakeService(Service):
    """Rejects changes of networks, because an edge has only copies."""

    descriptor: ClassVar[ServiceDescriptor] = inference_pb2.DESCRIPTOR.services_by_name["NetworkIntake"]

    def refuse(self, request: Message, context: CallContext) -> Message:
        """Reject the call."""
        del request, context
        raise InvalidArgument("an edge does not change networks", advice="give the address of the cloud")

    put_model_chunk = add_model = remove_model = refuse


@dataclass(eq=False)
class PredictionService(Service):
    """The Prediction service of the edge (dissertation, section 4.6, "cache hit")."""

    descriptor: ClassVar[ServiceDescriptor] = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"]

    caches: CatalogueCaches
    """Recognition caches, which learn from the reports."""
    load: LoadControl
    """Estimates the compute time of a photo."""

    def get_next_objects(
        self, request: GetNextObjectsRequest, context: CallContext
    ) -> GetNextObjectsResponse:
        """Count a local hit of a device, and predict the next objects; none for a new catalogue."""
        if not request.current_object_id:
            raise InvalidArgument("the request does not name the recognised object")
        cache = self.caches.get(context.catalogue)
        if cache is None:
            self.caches.admit(context.catalogue)
            return GetNextObjectsResponse(next_objects=next_objects_to_proto(NextObjects.nothing(), 0))
        following = cache.note_device_hit(context.client_id, request.current_object_id)
        if following is None:
            raise NotFound(
                f"catalogue {cache.name!r} has no object {request.current_object_id!r}",
                advice="delete its model: the object was removed, or this edge does not have it yet",
            )
        return GetNextObjectsResponse(
            next_objects=next_objects_to_proto(following, cache.listing.revision),
            answer_ms=self.load.answer_ms(context.queue_ms, cache.size),
        )
