"""Recognition as the edge serves it: from the cache if it can, from the cloud otherwise.

The flow of one request, in `EdgeRecognitionService.recognize`: read the query, ask the cache, answer; on a
miss ask the cloud with the time that is left, and answer when it answers. Nobody waits in between: the
worker is free as soon as the cloud was asked. Where features of a photo are unknown to the cloud, it gets the
photo as well: its second look needs one, and an edge must not cost recall. So an unknown photo reaches the
cloud twice at most, whether it was this edge or the device that first tried it with features.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from nearsight.common.caching.offload_choice import FEATURES
from nearsight.common.errors import InternalError, NearsightError
from nearsight.common.object_cache.codec import next_objects_to_proto
from nearsight.common.recognition.codec import recognized_object_to_proto
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache, Known
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.cloud_client import outcome_of
from nearsight.edge.query import Forwarded, Query, QueryReader, forwarded, forwarded_image
from nearsight.edge.services import EdgeServices
from nearsight.edge.uplink import Surplus, Uplink
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import RecognizeRequest, RecognizeResponse

LEAST_REPETITION_S = 0.1
"""With less time left, an answer to features stands, even if it is "unknown"."""
_EXTRACTION_MS = 10.0  # assumed before a catalogue has a cache that measures it


@dataclass(frozen=True, slots=True, eq=False)
class _Miss:
    """A request that the cloud must answer."""

    query: Query
    cache: CatalogueCache | None
    context: CallContext
    looked: bool
    started_s: float
    surplus_ms: float
    answer: Future[RecognizeResponse] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, eq=False)
class _Unknown:
    """What the cloud said of the features of a photo, and when: it gets the photo as well then."""

    response: RecognizeResponse
    waited_ms: float


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
        self._reader = reader
        self._uplink = uplink
        self._clock = services.clock

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Say what the image shows."""
        query = self._reader.read(request, context)
        cache = self._caches.get(context.catalogue)
        if query.asked_again:
            return self._ask_cloud(query, cache, context, may_work=False, surplus_ms=0.0)
        may_work = self._load.may_work()
        surplus = Surplus()
        if cache is not None:
            surplus = self._surplus(query, cache, may_work=may_work)
            cache.profiler.observe_query(image=query.image is not None, surplus_ms=surplus.last_ms)
            if may_work:
                response = self._work_on(query, cache, context.client_id)
                if response is not None:
                    return response
            else:
                cache.note_given_away()
        # A look into the cache made the features.
        surplus_ms = surplus.first_ms if query.features is None else 0.0
        return self._ask_cloud(query, cache, context, may_work=may_work, surplus_ms=surplus_ms)

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

    def _surplus(self, query: Query, cache: CatalogueCache, *, may_work: bool) -> Surplus:
        """What it takes longer to pass this on than if its features were here."""
        if query.image is None:
            return Surplus()
        return self._uplink.surplus(len(query.image), cache.profiler.extraction_ms if may_work else None)

    def _ask_cloud(
        self,
        query: Query,
        cache: CatalogueCache | None,
        context: CallContext,
        *,
        may_work: bool,
        surplus_ms: float,
    ) -> Future[RecognizeResponse]:
        miss = _Miss(query, cache, context, may_work, self._clock.monotonic(), surplus_ms)
        miss.answer.set_running_or_notify_cancel()  # nobody can cancel it between here and the answer
        self._send(miss, self._forwarded(query, cache, may_work=may_work))
        return miss.answer

    def _send(self, miss: _Miss, sent: Forwarded, unknown: _Unknown | None = None) -> None:
        """Ask the cloud; ``unknown`` if it was asked with the features before."""
        sent_s = self._clock.monotonic()
        context = miss.context
        reply = self._cloud.recognize(
            sent.request,
            sent.blobs,
            timeout_s=context.deadline.remaining_s(),
            catalogue=context.catalogue,
            trace_id=context.trace_id,
            client_id=context.client_id,
        )
        reply.add_done_callback(lambda done: self._replied(miss, done, sent, sent_s, unknown))

    def _replied(
        self,
        miss: _Miss,
        done: Future[Reply],
        sent: Forwarded,
        sent_s: float,
        unknown: _Unknown | None,
    ) -> None:
        now_s = self._clock.monotonic()
        spent_ms, waited_ms = (now_s - sent_s) * 1e3, (now_s - miss.started_s) * 1e3
        miss.context.add_next_tier_ms(spent_ms)
        outcome = outcome_of(done)
        response = _response_of(outcome)
        if isinstance(outcome, Reply) and isinstance(response, RecognizeResponse):
            self._uplink.observe(sent.form, sent.size_bytes, spent_ms, outcome.hops)
            image = miss.query.image
            again_s = miss.context.deadline.remaining_s()
            if (
                image is not None
                and sent.form == FEATURES
                and _is_unknown(response)
                and again_s >= LEAST_REPETITION_S
            ):
                again = forwarded_image(image, features_unknown=True)
                self._send(miss, again, _Unknown(response, waited_ms))
                return
            miss.context.hops.extend(outcome.hops)
            first_ms = waited_ms if unknown is None else unknown.waited_ms
            self._answer(miss, response, first_ms, asked_twice=unknown is not None)
        elif unknown is not None:
            # At least the features were looked at.
            self._answer(miss, unknown.response, unknown.waited_ms, asked_twice=True)
        elif isinstance(response, NearsightError):
            miss.answer.set_exception(response)

    def _answer(
        self, miss: _Miss, response: RecognizeResponse, first_ms: float, *, asked_twice: bool
    ) -> None:
        if miss.cache is not None:
            _learn(miss.cache, miss.context.client_id, response)
        if miss.query.image is not None and not miss.query.asked_again:
            self._uplink.observe_outcome(unknown=asked_twice or _is_unknown(response))
        miss.answer.set_result(response)
        self._note(miss, response, first_ms)

    def _note(self, miss: _Miss, response: RecognizeResponse, first_ms: float) -> None:
        """Let the cache know; ``first_ms`` is the time to the cloud's first answer."""
        cache = miss.cache
        if cache is None:
            self._caches.admit(miss.context.catalogue)
            return
        found = response.object
        known = None if _is_unknown(response) else Known(found.object_id, found.version)
        miss_ms = None if miss.query.asked_again else max(0.0, first_ms - miss.surplus_ms)
        cache.note_miss(known, miss_ms, looked=miss.looked)


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
