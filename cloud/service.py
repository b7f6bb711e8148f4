"""What the cloud serves: recognition over whole catalogues, and the catalogues themselves.

Messages in, messages out: requests are checked and translated here, the work is done by the parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.cloud.catalogue import Content
from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.intake import IntakeOutcome, ObjectIntake
from nearsight.cloud.store import StoredObject
from nearsight.cloud.training import MAX_IMAGES_PER_OBJECT, NewObject
from nearsight.common.background.futures import then
from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.recognition.codec import (
    features_from_proto,
    object_model_to_proto,
    recognized_object_to_proto,
)
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.object_recognizer import recognize_image
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import catalogue_pb2, recognition_pb2
from nearsight.protos.catalogue_pb2 import (
    AddObjectsRequest,
    AddObjectsResponse,
    CatalogueSummary,
    GetObjectModelsRequest,
    GetObjectModelsResponse,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
    ListObjectsResponse,
    ObjectSummary,
    RejectedObject,
    RemoveObjectsRequest,
    RemoveObjectsResponse,
    SkippedImage,
)
from nearsight.protos.recognition_pb2 import RecognizeRequest, RecognizeResponse

ANSWERED_BY = "cloud"

MAX_QUERY_FEATURES = 2_000
"""More features of one query are not looked at: the weakest decide nothing, a stranger chose their number."""

MAX_IDS = 10_000
"""Ids in one request."""

MAX_NEW_OBJECTS = 256
"""Objects in one AddObjects call."""


class RecognitionService(Service):
    """Says what an image shows, out of all objects of a catalogue."""

    descriptor: ClassVar[ServiceDescriptor] = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, catalogues: Catalogues, extractor: FeatureExtractor) -> None:
        self._catalogues = catalogues
        self._extractor = extractor

    def recognize(self, request: RecognizeRequest, context: CallContext) -> RecognizeResponse:
        """Recognise the image in blob 0, or the features in the blobs that the message names.

        Nobody is asked after the cloud, so it looks again at an image that is unknown at first.
        """
        recognizer = self._catalogues.get(context.catalogue).recognizer
        kind = request.WhichOneof("input")
        if kind == "features":
            features = features_from_proto(request.features, context.blobs).strongest(MAX_QUERY_FEATURES)
            found = recognizer.recognize(features).found
        elif kind == "image":
            image = _image(request, context)
            found = recognize_image(
                image, recognizer, self._extractor, go_on=lambda: not context.deadline.expired()
            ).found
        else:
            raise InvalidArgument("the request holds neither an image nor features")
        message = recognized_object_to_proto(found) if found else None
        return RecognizeResponse(object=message, answered_by=ANSWERED_BY)


class CatalogueService(Service):
    """Lists catalogues and objects, hands out object models, takes objects in and out.

    Parameters
    ----------
    catalogues : Catalogues
        What is served.
    intake : ObjectIntake
        Trains what is added.
    training : str
        Fingerprint of the settings that objects are trained with now.
    max_response_bytes : int
        Models beyond this are left out of a response and named.
    """

    descriptor: ClassVar[ServiceDescriptor] = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(
        self, catalogues: Catalogues, intake: ObjectIntake, *, training: str, max_response_bytes: int
    ) -> None:
        self._catalogues = catalogues
        self._intake = intake
        self._training = training
        self._max_response_bytes = max_response_bytes

    def get_object_models(
        self, request: GetObjectModelsRequest, context: CallContext
    ) -> GetObjectModelsResponse:
        """Models of the newest revision, in the order asked for; at least one if any exists."""
        wanted = _ids(request.object_ids)
        content = self._catalogues.get(context.catalogue).content
        response = GetObjectModelsResponse(revision=content.revision)
        room_bytes = self._max_response_bytes
        for object_id in wanted:
            model = content.models.get(object_id)
            if model is None:
                response.missing.append(object_id)
                continue
            if response.left_out or (response.models and model.size_bytes > room_bytes):
                response.left_out.append(object_id)
                continue
            message, blobs = object_model_to_proto(model, len(context.response_blobs))
            response.models.append(message)
            context.response_blobs.extend(blobs)
            room_bytes -= message.ByteSize() + sum(map(len, blobs))
        return response

    def list_objects(self, request: ListObjectsRequest, context: CallContext) -> ListObjectsResponse:
        """Everything in the catalogue, by id. What is listed can be fetched."""
        del request
        catalogue = self._catalogues.get(context.catalogue)
        content = catalogue.content
        stored = self._catalogues.store.objects(catalogue.name) if content.revision else ()
        summaries = [self._summary(item, content) for item in stored if item.object_id in content.models]
        return ListObjectsResponse(objects=summaries, revision=content.revision)

    def list_catalogues(self, request: ListCataloguesRequest, context: CallContext) -> ListCataloguesResponse:
        """All catalogues in service, by name."""
        del request, context
        states = {catalogue.name: catalogue.state for catalogue in self._catalogues.all()}
        return ListCataloguesResponse(
            catalogues=[
                CatalogueSummary(name=name, objects=state.objects, revision=state.revision)
                for name, state in states.items()
            ]
        )

    def add_objects(self, request: AddObjectsRequest, context: CallContext) -> Future[AddObjectsResponse]:
        """Add or replace objects; answered when they are recognised (or stored, with ``index_later``)."""
        objects = _new_objects(request, context)
        adding = self._intake.add(
            context.catalogue, objects, index_later=request.index_later, nobody_waits=context.deadline.expired
        )
        return then(adding, _added_response)

    def remove_objects(
        self, request: RemoveObjectsRequest, context: CallContext
    ) -> Future[RemoveObjectsResponse]:
        """Remove objects; answered when they are no longer recognised."""
        catalogue = self._catalogues.get(context.catalogue)
        outcome = catalogue.remove(_ids(request.object_ids))
        response = RemoveObjectsResponse(
            removed=outcome.removed, missing=outcome.missing, revision=outcome.revision
        )
        return then(catalogue.when_current(outcome.revision), lambda _: response)

    def _summary(self, item: StoredObject, content: Content) -> ObjectSummary:
        # The store may be one version ahead of the content: nothing vouches for that version yet.
        served = content.models[item.object_id].version == item.version
        return ObjectSummary(
            object_id=item.object_id,
            label=item.label,
            version=item.version,
            views=item.views,
            model_bytes=item.model_bytes,
            content_hash=item.content_hash if item.training == self._training else "",
            model_digest=content.digests[item.object_id] if served else b"",
        )


def _image(request: RecognizeRequest, context: CallContext) -> memoryview:
    if len(context.blobs) != 1 or len(context.blobs[0]) != request.image.size_bytes:
        sizes = [len(blob) for blob in context.blobs]
        raise InvalidMessage(f"blobs of {sizes} bytes came, expected one image of {request.image.size_bytes}")
    return context.blobs[0]


def _ids(object_ids: Sequence[str]) -> list[str]:
    if len(object_ids) > MAX_IDS:
        raise InvalidArgument(f"{len(object_ids)} ids in one call, the limit is {MAX_IDS}")
    return list(dict.fromkeys(object_ids))


def _new_objects(request: AddObjectsRequest, context: CallContext) -> list[NewObject]:
    """The objects of a request with their images, which lie in the blobs one after the other."""
    if len(request.objects) > MAX_NEW_OBJECTS:
        raise InvalidArgument(f"{len(request.objects)} objects in one call, the limit is {MAX_NEW_OBJECTS}")
    declared = sum(item.images for item in request.objects)
    if declared != len(context.blobs):
        raise InvalidMessage(f"{declared} images are declared, {len(context.blobs)} came")
    too_many = [item.object_id for item in request.objects if item.images > MAX_IMAGES_PER_OBJECT]
    if too_many:
        raise InvalidArgument(f"{too_many[0]!r} has more than {MAX_IMAGES_PER_OBJECT} images")
    blobs = iter(context.blobs)
    return [
        NewObject(
            item.object_id,
            item.label or item.object_id,
            tuple(itertools.islice(blobs, item.images)),
            dict(item.metadata),
        )
        for item in request.objects
    ]


def _added_response(outcome: IntakeOutcome) -> AddObjectsResponse:
    training, stored = outcome.training, outcome.stored
    return AddObjectsResponse(
        added=stored.added,
        replaced=stored.replaced,
        unchanged=stored.unchanged,
        rejected=[RejectedObject(object_id=r.object_id, reason=r.reason) for r in training.rejected],
        skipped=[
            SkippedImage(object_id=s.object_id, image=s.image, reason=s.reason) for s in training.skipped
        ],
        revision=stored.revision,
    )
