"""An edge that a test controls: a real server that recognises, predicts and sends models."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.object_cache.next_objects import NextObjects, next_objects_to_proto
from nearsight.common.recognition.codec import (
    features_from_proto,
    model_digest,
    object_model_to_proto,
    recognized_object_to_proto,
)
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import catalogue_pb2, prediction_pb2, recognition_pb2
from nearsight.protos.catalogue_pb2 import (
    GetObjectModelsRequest,
    GetObjectModelsResponse,
    ListObjectsRequest,
    ListObjectsResponse,
    ObjectSummary,
)
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest, GetNextObjectsResponse
from nearsight.protos.recognition_pb2 import NextObjectsMessage, RecognizeRequest, RecognizeResponse
from support.endpoints import fresh_endpoint
from support.gallery import SETTINGS
from support.waiting import LONG_S

Predict = Callable[[str], NextObjectsMessage]


class PredictingEdge:
    """An edge with one catalogue; records the requests of devices. A tier of another name predicts nothing.

    Attributes
    ----------
    forms : list of str
        Kind of each recognition request, "image" or "features".
    reported : list of (str, str)
        Device and object of each report.
    fetched : list of str
        Object of each request for a model.
    silent : set of str
        Objects whose models are never sent.
    listings : int
        Number of requests for the list of objects.
    delay_s : float
        Additional delay of each answer.
    answer_ms : float
        Time of a photo at the edge, in answers to reports; 0: not included.
    predict : callable
        Predicts the next objects after an object; a test may replace it.
    listing_gate : threading.Event
        Requests for the list of objects wait until it is set.
    corners : bool
        Whether answers have corners; those of a result cache have none.
    """

    def __init__(self, models: Sequence[ObjectModel], listen: str = "", tier: str = "edge") -> None:
        self.tier = tier
        self.forms: list[str] = []
        self.reported: list[tuple[str, str]] = []
        self.fetched: list[str] = []
        self.silent: set[str] = set()
        self.listings = 0
        self.revision = 1
        self.delay_s = 0.1
        self.answer_ms = 0.0
        self.listing_gate = threading.Event()
        self.listing_gate.set()
        self.corners = True
        self.set_models(models, bump=False)
        self.predict: Predict = self.everything_else
        services = [_Recognition(self), _Prediction(self), _Catalogue(self)]
        settings = ServerSettings(listen=listen or fresh_endpoint(), workers=2, queue_timeout_s=LONG_S)
        self.server = RpcServer(services, tier=tier, settings=settings)
        self.server.start()

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    def set_models(self, models: Sequence[ObjectModel], *, bump: bool = True) -> None:
        """Replace the catalogue."""
        self.recognizer = ObjectRecognizer.build(models, SETTINGS)
        self.revision += bump

    def everything_else(self, current: str) -> NextObjectsMessage:
        """Predict all other objects with equal probability."""
        others = [name for name in sorted(self.recognizer.models) if name != current]
        return self.prediction({name: 0.9 / len(others) for name in others})

    def prediction(self, probabilities: dict[str, float]) -> NextObjectsMessage:
        """A message with these probabilities."""
        values = np.array(list(probabilities.values()))
        following = NextObjects(tuple(probabilities), values)
        return next_objects_to_proto(following, self.revision)

    def stop(self) -> None:
        self.server.stop(0.0)


class _Recognition(Service):
    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, edge: PredictingEdge) -> None:
        self._edge = edge

    def recognize(self, request: RecognizeRequest, context: CallContext) -> Future[RecognizeResponse]:
        """Answer after a delay that simulates a network."""
        response = self._response(request, context)
        later: Future[RecognizeResponse] = Future()
        timer = threading.Timer(self._edge.delay_s, later.set_result, [response])
        timer.daemon = True
        timer.start()
        return later

    def _response(self, request: RecognizeRequest, context: CallContext) -> RecognizeResponse:
        edge = self._edge
        edge.forms.append(str(request.WhichOneof("input")))
        if request.HasField("image"):
            features = extract_features(load_image(bytes(context.blobs[0])), SETTINGS.query_features)
        else:
            features = features_from_proto(request.features, context.blobs)
        found = edge.recognizer.recognize(features).found
        response = RecognizeResponse(answered_by=edge.tier)
        if found is not None:
            response.object.CopyFrom(recognized_object_to_proto(found))
            if not edge.corners:
                response.object.ClearField("corners")
            if edge.tier == "edge":
                response.next_objects.CopyFrom(edge.predict(found.object_id))
        return response


class _Prediction(Service):
    descriptor = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"]

    def __init__(self, edge: PredictingEdge) -> None:
        self._edge = edge

    def get_next_objects(
        self, request: GetNextObjectsRequest, context: CallContext
    ) -> GetNextObjectsResponse:
        self._edge.reported.append((context.client_id, request.current_object_id))
        if request.current_object_id not in self._edge.recognizer.models:
            raise NotFound(f"there is no object {request.current_object_id!r}")
        following = self._edge.predict(request.current_object_id)
        return GetNextObjectsResponse(next_objects=following, answer_ms=self._edge.answer_ms)


class _Catalogue(Service):
    descriptor = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(self, edge: PredictingEdge) -> None:
        self._edge = edge

    def get_object_models(
        self, request: GetObjectModelsRequest, context: CallContext
    ) -> GetObjectModelsResponse | Future[GetObjectModelsResponse]:
        edge = self._edge
        edge.fetched.extend(request.object_ids)
        if not edge.silent.isdisjoint(request.object_ids):
            return Future()
        response = GetObjectModelsResponse(revision=edge.revision)
        for name in request.object_ids:
            model = edge.recognizer.models.get(name)
            if model is None:
                response.missing.append(name)
                continue
            message, blobs = object_model_to_proto(model, len(context.response_blobs))
            response.models.append(message)
            context.response_blobs.extend(blobs)
        return response

    def list_objects(self, request: ListObjectsRequest, context: CallContext) -> ListObjectsResponse:
        edge = self._edge
        edge.listings += 1
        assert edge.listing_gate.wait(LONG_S)
        return ListObjectsResponse(
            objects=[
                ObjectSummary(
                    object_id=model.object_id,
                    label=model.label,
                    version=model.version,
                    model_digest=model_digest(model),
                )
                for model in edge.recognizer.models.values()
            ],
            revision=edge.revision,
        )

    def list_catalogues(self, request: object, context: CallContext) -> catalogue_pb2.ListCataloguesResponse:
        objects, revision = len(self._edge.recognizer), self._edge.revision
        summary = catalogue_pb2.CatalogueSummary(name="museum", objects=objects, revision=revision)
        return catalogue_pb2.ListCataloguesResponse(catalogues=[summary])

    def _refuse(self, request: object, context: CallContext) -> object:
        raise InvalidArgument("not in this test")

    add_objects = remove_objects = remove_catalogue = _refuse
