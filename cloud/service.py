"""Services of the cloud: recognition over whole catalogues, and the catalogues themselves.

The services check and translate messages; the objects that they are given do the work.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.intake import ObjectIntake
from nearsight.cloud.networks import CloudNetworks
from nearsight.common.background.futures import then
from nearsight.common.catalogue.answers import add_models, checked_ids
from nearsight.common.catalogue.live_catalogue import Content
from nearsight.common.catalogue.store import Author, PutOutcome, StoredObject
from nearsight.common.catalogue.training import NewObject
from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.inference.classification import classify
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.recognition.codec import features_from_proto, recognized_object_to_proto
from nearsight.common.recognition.object_recognizer import MAX_QUERY_FEATURES, recognize_image
from nearsight.common.recognition.settings import ImageLimits
from nearsight.common.request.answer import NETWORK
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import catalogue_pb2 as pb
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import RecognizeRequest, RecognizeResponse

ANSWERED_BY = "cloud"

MAX_NEW_OBJECTS = 256
"""Limit of objects in one AddObjects call."""


@dataclass(eq=False)
class RecognitionService(Service):
    """Recognises images with all objects of a catalogue, or with the network of that name."""

    descriptor: ClassVar[ServiceDescriptor] = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    catalogues: Catalogues
    """Catalogues in service."""
    networks: CloudNetworks
    """Answer requests for names without a catalogue."""
    limits: ImageLimits
    """Limits of images for networks."""

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Recognise the image in blob 0, or the features in the blobs that the message names.

        No tier comes after the cloud. Therefore it looks a second time at an image that is unknown at first,
        unless the device will send further images of the same scene.
        """
        name = context.catalogue
        catalogue = self.catalogues.by_name.get(name)
        if catalogue is None:
            if self.networks.repository.has(name):
                return self._ask_network(request, context)
            catalogue = self.catalogues.get(name)
        recognizer = catalogue.recognizer
        kind = request.WhichOneof("input")
        if kind == "features":
            features = features_from_proto(request.features, context.blobs).strongest(MAX_QUERY_FEATURES)
            result = recognizer.recognize(features)
        elif kind == "image":
            result = recognize_image(
                _image(request, context),
                recognizer,
                go_on=lambda: not (request.image.one_look or context.deadline.expired()),
            )
        else:
            raise InvalidArgument("the request holds neither an image nor features")
        message = recognized_object_to_proto(result.found) if result.found else None
        return RecognizeResponse(object=message, answered_by=ANSWERED_BY)

    def _ask_network(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Label from a network. It cannot use features: the answer is "unknown", and the image may follow."""
        if request.WhichOneof("input") == "features":
            return RecognizeResponse(answered_by=ANSWERED_BY, grain=NETWORK)
        image, memory = _image(request, context), self.networks.memory

        def answer(lease: Lease) -> RecognizeResponse:
            found = classify(lease, image, self.limits, context.deadline.remaining_s())
            message = recognized_object_to_proto(found) if found else None
            return RecognizeResponse(object=message, answered_by=ANSWERED_BY, grain=NETWORK)

        found = memory.request(context.catalogue)
        if isinstance(found, Absent):
            return memory.jobs.when_loaded(found, answer, context.deadline.remaining_s())
        with found:
            return answer(found)


@dataclass(eq=False)
class CatalogueService(Service):
    """Lists catalogues and objects, sends object models, adds and removes objects."""

    descriptor: ClassVar[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["Catalogue"]
    own_worker: ClassVar[bool] = True  # a long queue makes models more urgent for an edge: decision 034

    catalogues: Catalogues
    """Catalogues in service."""
    intake: ObjectIntake
    """Trains new objects."""
    training: str
    """Fingerprint of the current training settings."""
    max_response_bytes: int
    """Limit of the models in a response; ids of omitted models are listed."""

    def get_object_models(
        self, request: pb.GetObjectModelsRequest, context: CallContext
    ) -> pb.GetObjectModelsResponse:
        """Models of the newest revision, in the order of the request; at least one if any exists."""
        wanted = checked_ids(request.object_ids)
        content = self.catalogues.get(context.catalogue).content
        models = [content.models[name] for name in wanted if name in content.models]
        missing = [name for name in wanted if name not in content.models]
        response = pb.GetObjectModelsResponse(missing=missing, revision=content.revision)
        add_models(response, context.response_blobs, models, self.max_response_bytes)
        return response

    def list_objects(self, request: pb.ListObjectsRequest, context: CallContext) -> pb.ListObjectsResponse:
        """All objects of the catalogue, by id. Every listed object can be fetched."""
        del request
        catalogue = self.catalogues.get(context.catalogue)
        content = catalogue.content
        stored = self.catalogues.store.objects(catalogue.name) if content.revision else ()
        summaries = [self._summary(item, content) for item in stored if item.object_id in content.models]
        return pb.ListObjectsResponse(objects=summaries, revision=content.revision)

    def list_catalogues(
        self, request: pb.ListCataloguesRequest, context: CallContext
    ) -> pb.ListCataloguesResponse:
        """The catalogues that the caller may use, by name; UNAVAILABLE until all are loaded."""
        del request
        self.catalogues.check_loaded()
        served = (one for one in self.catalogues.all() if context.caller.sees(one.name))
        states = {catalogue.name: catalogue.state for catalogue in served}
        return pb.ListCataloguesResponse(
            catalogues=[
                pb.CatalogueSummary(name=name, objects=state.objects, revision=state.revision)
                for name, state in states.items()
            ]
        )

    def add_objects(
        self, request: pb.AddObjectsRequest, context: CallContext
    ) -> Future[pb.AddObjectsResponse]:
        """Add or replace objects; answers when they are recognised (with ``index_later``: stored)."""
        objects = _new_objects(request, context)
        adding = self.intake.add(
            context.catalogue,
            objects,
            index_later=request.index_later,
            allow_similar=request.allow_similar,
            by=_author(context),
            expired=context.cancelled,
        )
        return then(adding, _added_response)

    def remove_objects(
        self, request: pb.RemoveObjectsRequest, context: CallContext
    ) -> Future[pb.RemoveObjectsResponse]:
        """Remove objects; answers when they are no longer recognised."""
        catalogue = self.catalogues.get(context.catalogue)
        outcome = catalogue.remove(checked_ids(request.object_ids), _author(context))
        response = pb.RemoveObjectsResponse(
            removed=outcome.removed, missing=outcome.missing, revision=outcome.revision
        )
        return then(catalogue.when_current(outcome.revision), lambda _: response)

    def remove_catalogue(
        self, request: pb.RemoveCatalogueRequest, context: CallContext
    ) -> pb.RemoveCatalogueResponse:
        """Remove a catalogue with all its objects. The request must name it, even if it is the only one."""
        del request
        objects = self.catalogues.remove(context.named_catalogue(), _author(context))
        return pb.RemoveCatalogueResponse(objects=objects)

    def _summary(self, item: StoredObject, content: Content) -> pb.ObjectSummary:
        # The store may be one version ahead of the content, which has no digest of that version yet.
        served = content.models[item.object_id].version == item.version
        return pb.ObjectSummary(
            object_id=item.object_id,
            label=item.label,
            version=item.version,
            views=item.views,
            model_bytes=item.model_bytes,
            content_hash=item.content_hash if item.training == self.training else "",
            model_digest=content.digests[item.object_id] if served else b"",
        )


def _image(request: RecognizeRequest, context: CallContext) -> memoryview:
    """The image of a request."""
    sizes = [*map(len, context.blobs)]
    if sizes != [request.image.size_bytes]:
        raise InvalidMessage(f"got blobs of {sizes} bytes, expected one image of {request.image.size_bytes}")
    return context.blobs[0]


def _author(context: CallContext) -> Author:
    return Author(context.caller.name, context.caller.key)


def _new_objects(request: pb.AddObjectsRequest, context: CallContext) -> list[NewObject]:
    """The objects of a request with their images, which are in the blobs one after the other."""
    if len(request.objects) > MAX_NEW_OBJECTS:
        raise InvalidArgument(f"{len(request.objects)} objects in one call, the limit is {MAX_NEW_OBJECTS}")
    declared = sum(item.images for item in request.objects)
    if declared != len(context.blobs):
        raise InvalidMessage(f"{declared} images are declared, {len(context.blobs)} arrived")
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


def _added_response(outcome: PutOutcome) -> pb.AddObjectsResponse:
    return pb.AddObjectsResponse(
        added=outcome.added,
        replaced=outcome.replaced,
        unchanged=outcome.unchanged,
        rejected=[
            pb.RejectedObject(object_id=one.object_id, reason=one.reason, twin=one.twin)
            for one in outcome.rejected
        ],
        skipped=[
            pb.SkippedImage(object_id=one.object_id, image=one.image, reason=one.reason)
            for one in outcome.skipped
        ],
        revision=outcome.revision,
    )
