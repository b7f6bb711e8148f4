"""Recognition as the edge serves it: from the cache if it can, from the cloud otherwise.

The flow of one request, in `EdgeRecognitionService.recognize`: read the query, ask the cache, answer; on a
miss ask the cloud with the time that is left, and answer when it answers. Nobody waits in between: the
worker is free as soon as the cloud was asked.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from nearsight.common.caching.codec import next_objects_to_proto
from nearsight.common.clock import Clock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.recognition.codec import (
    features_from_proto,
    features_to_proto,
    recognized_object_to_proto,
)
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache, Known
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.cloud_client import CloudClient, outcome_of
from nearsight.edge.settings import Forward
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest, RecognizeResponse

Blob = bytes | memoryview


@dataclass(slots=True)
class Query:
    """What a request brought: an image, features, or in the end both."""

    image: Blob | None
    features: Features | None


class QueryReader:
    """Gets features out of requests.

    Parameters
    ----------
    extractor : FeatureExtractor
        For requests that bring an image.
    settings : RecognitionSettings
        Limits of images, and how many features.
    """

    def __init__(self, extractor: FeatureExtractor, settings: RecognitionSettings) -> None:
        self._extractor = extractor
        self._settings = settings

    def read(self, request: RecognizeRequest, context: CallContext) -> Query:
        """Read and check what the request brought.

        Raises
        ------
        InvalidArgument
            If there is neither an image nor features, or they are malformed.
        """
        kind = request.WhichOneof("input")
        if kind == "features":
            return Query(None, features_from_proto(request.features, context.blobs))
        if kind == "image" and context.blobs:
            return Query(context.blobs[0], None)
        raise InvalidMessage(
            "the request brings neither features nor an image", advice="send an image as blob 0"
        )

    def extract(self, image: Blob) -> Features:
        """The features of an image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            See `load_image`.
        """
        return self._extractor.extract(
            load_image(image, self._settings.limits), self._settings.query_features
        )


def forwarded(query: Query, forward: Forward) -> tuple[RecognizeRequest, list[Blob]]:
    """The request to the cloud for a query, and its blobs.

    What the edge does not have is not made for it, except by the setting ``features``: see
    `EdgeRecognitionService`.
    """
    encoded: tuple[RecognizeRequest, list[Blob]] | None = None
    if query.features is not None:
        message, blobs = features_to_proto(query.features, 0)
        encoded = RecognizeRequest(features=message), list(blobs)
        if query.image is None or forward == "features":
            return encoded
    if query.image is None:
        raise InternalError("a query without image and features")
    size_bytes = len(query.image)
    if encoded is not None and forward == "auto" and sum(map(len, encoded[1])) <= size_bytes:
        return encoded
    return RecognizeRequest(image=ImageInput(size_bytes=size_bytes)), [query.image]


class EdgeRecognitionService(Service):
    """The Recognition service of the edge.

    Parameters
    ----------
    caches : CatalogueCaches
        The recognition caches.
    cloud : CloudClient
        Who is asked on a miss.
    reader : QueryReader
        Gets features out of images.
    forward : {"auto", "features", "image"}
        What the cloud gets.
    clock : Clock
        For the measurements.
    """

    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(
        self, caches: CatalogueCaches, cloud: CloudClient, reader: QueryReader, forward: Forward, clock: Clock
    ) -> None:
        self._caches = caches
        self._cloud = cloud
        self._reader = reader
        self._forward = forward
        self._clock = clock

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Say what the image shows."""
        query = self._reader.read(request, context)
        cache = self._caches.get(context.catalogue)
        asked_here = cache is not None and cache.size > 0
        if cache is not None:
            cache.profiler.observe_query(image=query.image is not None)
        if query.image is not None and (asked_here or self._forward == "features"):
            started_s = self._clock.monotonic()
            query.features = self._reader.extract(query.image)
            if cache is not None:
                cache.profiler.observe_extraction((self._clock.monotonic() - started_s) * 1e3)
        if cache is not None and asked_here and query.features is not None:
            found = cache.lookup(query.features)
            if found is not None:
                response = RecognizeResponse(object=recognized_object_to_proto(found), answered_by="edge")
                _learn(cache, context.client_id, response)
                cache.note_hit()
                return response
        return self._ask_cloud(query, cache, context)

    def _ask_cloud(
        self, query: Query, cache: CatalogueCache | None, context: CallContext
    ) -> Future[RecognizeResponse]:
        request, blobs = forwarded(query, self._forward)
        answer: Future[RecognizeResponse] = Future()
        answer.set_running_or_notify_cancel()  # so that nobody can cancel it between here and the answer
        started_s = self._clock.monotonic()
        reply = self._cloud.recognize(
            request,
            blobs,
            timeout_s=context.deadline.remaining_s(),
            catalogue=context.catalogue,
            trace_id=context.trace_id,
            client_id=context.client_id,
        )

        def pass_on(done: Future[Reply]) -> None:
            round_trip_ms = (self._clock.monotonic() - started_s) * 1e3
            context.add_next_tier_ms(round_trip_ms)
            outcome = outcome_of(done)
            response = _response_of(outcome)
            if isinstance(outcome, Reply) and isinstance(response, RecognizeResponse):
                context.hops.extend(outcome.hops)
                if cache is not None:
                    _learn(cache, context.client_id, response)
                answer.set_result(response)
                self._note(cache, context.catalogue, response, round_trip_ms)
            elif isinstance(response, NearsightError):
                answer.set_exception(response)

        reply.add_done_callback(pass_on)
        return answer

    def _note(
        self, cache: CatalogueCache | None, catalogue: str, response: RecognizeResponse, round_trip_ms: float
    ) -> None:
        if cache is None:
            self._caches.admit(catalogue)
            return
        found = response.object
        known = Known(found.object_id, found.version) if response.HasField("object") else None
        cache.note_miss(known, round_trip_ms)


def _learn(cache: CatalogueCache, device_id: str, response: RecognizeResponse) -> None:
    """Count an answer with an object, and add what the device may ask for next."""
    if not response.HasField("object"):
        return
    following = cache.observe(device_id, response.object.object_id)
    if following is not None:
        response.next_objects.CopyFrom(next_objects_to_proto(following, cache.revision))


def _response_of(outcome: Reply | NearsightError) -> RecognizeResponse | NearsightError:
    if isinstance(outcome, NearsightError):
        return outcome
    if isinstance(outcome.message, RecognizeResponse):
        return outcome.message
    return InternalError("the cloud answered with another message")
