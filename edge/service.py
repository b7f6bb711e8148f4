"""Recognition as the edge serves it: from the cache if it can, from the cloud otherwise.

The flow of one request, in `EdgeRecognitionService.recognize`: read the query, ask the cache, answer; on a
miss ask the cloud with the time that is left, and answer when it answers. Nobody waits in between: the
worker is free as soon as the cloud was asked. Where features of a photo are unknown to the cloud, it gets the
photo as well: its second look needs one, and an edge must not cost recall.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from nearsight.common.caching.codec import next_objects_to_proto
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
from nearsight.edge.cloud_client import outcome_of
from nearsight.edge.services import EdgeServices
from nearsight.edge.uplink import Uplink
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest, RecognizeResponse

Blob = bytes | memoryview

_EXTRACTION_MS = 10.0  # assumed before a catalogue has a cache that measures it


@dataclass(slots=True)
class Query:
    """What a request brought: an image, features, or in the end both."""

    image: Blob | None
    features: Features | None


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request to the cloud."""

    form: str
    request: RecognizeRequest
    blobs: list[Blob]

    @property
    def size_bytes(self) -> int:
        """Bytes of the photo in this form."""
        return sum(map(len, self.blobs))


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


def forwarded(query: Query, uplink: Uplink, extraction_ms: float | None) -> Forwarded:
    """The request to the cloud for a query; ``extraction_ms`` as in `Uplink.sends_features`.

    Its ``input`` is empty if the features must be extracted first.
    """
    if query.image is None and query.features is None:
        raise InternalError("a query without image and features")
    encoded = features_to_proto(query.features, 0) if query.features is not None else None
    image_bytes = None if query.image is None else len(query.image)
    features_bytes = None if encoded is None else sum(map(len, encoded[1]))
    if query.image is None or uplink.sends_features(image_bytes, features_bytes, extraction_ms):
        if encoded is None:
            return Forwarded("features", RecognizeRequest(), [])
        return Forwarded("features", RecognizeRequest(features=encoded[0]), list(encoded[1]))
    return _image(query.image)


def _image(image: Blob) -> Forwarded:
    return Forwarded("image", RecognizeRequest(image=ImageInput(size_bytes=len(image))), [image])


class EdgeRecognitionService(Service):
    """The Recognition service of the edge.

    Parameters
    ----------
    caches : CatalogueCaches
        The recognition caches.
    services : EdgeServices
        Among them the cloud, which is asked on a miss.
    reader : QueryReader
        Gets features out of images.
    uplink : Uplink
        Decides what the cloud gets.
    """

    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(
        self, caches: CatalogueCaches, services: EdgeServices, reader: QueryReader, uplink: Uplink
    ) -> None:
        self._caches = caches
        self._cloud = services.cloud
        self._load = services.load
        self._metrics = services.metrics
        self._reader = reader
        self._uplink = uplink
        self._clock = services.clock

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Say what the image shows."""
        query = self._reader.read(request, context)
        cache = self._caches.get(context.catalogue)
        may_work = self._load.may_work()
        if cache is not None:
            cache.profiler.observe_query(image=query.image is not None)
            if may_work:
                response = self._work_on(query, cache, context.client_id)
                if response is not None:
                    return response
            else:
                self._metrics.given_away.labels(cache.name).inc()
        return self._ask_cloud(query, cache, context, may_work=may_work)

    def _work_on(self, query: Query, cache: CatalogueCache, device_id: str) -> RecognizeResponse | None:
        """Look into the cache; None if the cloud must be asked."""
        asked_here = cache.size > 0
        started_s = self._clock.monotonic()
        if query.image is not None and asked_here:
            self._extract(query, cache)
        found = cache.lookup(query.features) if asked_here and query.features is not None else None
        if asked_here:
            self._load.computed((self._clock.monotonic() - started_s) * 1e3)
        if found is None:
            return None
        response = RecognizeResponse(object=recognized_object_to_proto(found), answered_by="edge")
        _learn(cache, device_id, response)
        cache.note_hit(found.object_id)
        return response

    def _extract(self, query: Query, cache: CatalogueCache | None) -> None:
        if query.image is None:
            return
        started_s = self._clock.monotonic()
        query.features = self._reader.extract(query.image)
        if cache is not None:
            cache.profiler.observe_extraction((self._clock.monotonic() - started_s) * 1e3)

    def _forwarded(self, query: Query, cache: CatalogueCache | None, *, may_work: bool) -> Forwarded:
        extraction_ms = cache.profiler.extraction_ms if cache is not None else _EXTRACTION_MS
        sent = forwarded(query, self._uplink, extraction_ms if may_work else None)
        if sent.request.WhichOneof("input") is None:
            self._extract(query, cache)
            sent = forwarded(Query(None, query.features), self._uplink, None)
        return sent

    def _ask_cloud(
        self, query: Query, cache: CatalogueCache | None, context: CallContext, *, may_work: bool
    ) -> Future[RecognizeResponse]:
        answer: Future[RecognizeResponse] = Future()
        answer.set_running_or_notify_cancel()  # so that nobody can cancel it between here and the answer
        started_s = self._clock.monotonic()

        def send(sent: Forwarded, unless: RecognizeResponse | None = None) -> None:
            """Ask the cloud; if that fails, ``unless`` is the answer."""
            sent_s = self._clock.monotonic()
            reply = self._cloud.recognize(
                sent.request,
                sent.blobs,
                timeout_s=context.deadline.remaining_s(),
                catalogue=context.catalogue,
                trace_id=context.trace_id,
                client_id=context.client_id,
            )
            reply.add_done_callback(lambda done: pass_on(done, sent, sent_s, unless))

        def pass_on(
            done: Future[Reply], sent: Forwarded, sent_s: float, unless: RecognizeResponse | None
        ) -> None:
            now_s = self._clock.monotonic()
            context.add_next_tier_ms((now_s - sent_s) * 1e3)
            outcome = outcome_of(done)
            response = _response_of(outcome)
            if isinstance(outcome, Reply) and isinstance(response, RecognizeResponse):
                self._uplink.observe(sent.form, sent.size_bytes, (now_s - sent_s) * 1e3, outcome.hops)
                if sent.form == "features" and query.image is not None and _is_unknown(response):
                    send(_image(query.image), unless=response)
                    return
                context.hops.extend(outcome.hops)
                if cache is not None:
                    _learn(cache, context.client_id, response)
                answer.set_result(response)
                self._note(cache, context.catalogue, response, (now_s - started_s) * 1e3, looked=may_work)
            elif unless is not None:
                answer.set_result(unless)
            elif isinstance(response, NearsightError):
                answer.set_exception(response)

        send(self._forwarded(query, cache, may_work=may_work))
        return answer

    def _note(
        self,
        cache: CatalogueCache | None,
        catalogue: str,
        response: RecognizeResponse,
        round_trip_ms: float,
        *,
        looked: bool,
    ) -> None:
        if cache is None:
            self._caches.admit(catalogue)
            return
        found = response.object
        known = Known(found.object_id, found.version) if response.HasField("object") else None
        cache.note_miss(known, round_trip_ms, looked=looked)


def _is_unknown(response: RecognizeResponse) -> bool:
    return not response.HasField("object")


def _learn(cache: CatalogueCache, device_id: str, response: RecognizeResponse) -> None:
    """Count an answer with an object, and add what the device may ask for next."""
    if _is_unknown(response):
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
