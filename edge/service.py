"""Recognition as the edge serves it: the daemon's driver of the request flow (`common/request/flow.py`).

A worker of the server carries out the effects until the answer is there or the cloud was asked; then it is
free. The thread that receives the cloud's reply goes on.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType

from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.object_cache.codec import next_objects_to_proto
from nearsight.common.recognition.codec import recognized_object_from_proto, recognized_object_to_proto
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer, Lesson
from nearsight.common.request.flow import Ask, Effect, Finish, Look, RequestFlow
from nearsight.common.request.forms import FEATURES, IMAGE, ExpectedAnswer, Payload
from nearsight.common.request.next_tiers import AskRules, NextTiers
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache, Known
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.cloud_client import outcome_of
from nearsight.edge.load import LoadControl
from nearsight.edge.query import EdgeQuery, QueryReader
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import Forward
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import RecognizeRequest, RecognizeResponse

EDGE, CLOUD = "edge", "cloud"
_COMPUTING_MS = MappingProxyType({FEATURES: 20.0, IMAGE: 40.0})
"""What the cloud is assumed to compute on a photo, until it answers."""
_EXTRACTION_MS = 10.0  # assumed before a catalogue has a cache that measures it


def next_tiers(query_features: int) -> NextTiers:
    """The cloud, which is the only tier that an edge asks."""
    return NextTiers((CLOUD,), AskRules(), _COMPUTING_MS, query_features)


class EdgeObjectCache:
    """The object cache of one catalogue as a stage of the edge's request flow.

    Parameters
    ----------
    cache : CatalogueCache
        What is looked into, and what learns.
    load : LoadControl
        Told what the edge computes.
    next_tiers : NextTiers
        Knows what it costs to pass a photo on.
    forward : {"auto", "features", "image"}
        The form in which photos are passed on.
    """

    grain = OBJECT

    def __init__(
        self, cache: CatalogueCache, load: LoadControl, next_tiers: NextTiers, forward: Forward
    ) -> None:
        self.cache = cache
        self._load = load
        self._next_tiers = next_tiers
        self._forward = forward

    def features_wanted(self, query: EdgeQuery) -> int | None:
        """As many as the edge extracts; None if the request is given away, or the cache is empty."""
        if query.asked_again:
            return None
        cache = self.cache
        query.extraction_ms = cache.profiler.extraction_ms
        overhead = self._forwarding_overhead(query)
        query.overhead_ms = overhead.first_ms
        cache.profiler.observe_query(image=query.has_image, overhead_ms=overhead.last_ms)
        if not query.may_work:
            cache.note_given_away()
            return None
        if not cache.size:
            return None
        query.overhead_ms = 0.0  # a look makes the features
        query.began_s = cache.clock.monotonic()
        return cache.query_features

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """Look the photo up; None is a miss."""
        found = self._found(query)
        self._load.computed((self.cache.clock.monotonic() - query.began_s) * 1e3)
        if found is not None:
            self.cache.note_hit(found.object_id)
        return found

    def _found(self, query: EdgeQuery) -> RecognizedObject | None:
        return None if query.features is None else self.cache.lookup(query.features)

    def learn(self, query: EdgeQuery, answer: Answer, lesson: Lesson | None) -> None:
        """The cloud answered: what a miss costs, and what was asked for.

        Of a photo whose features were here a moment ago it is a second trip alone, which no cache spares.
        """
        if lesson is None:
            return
        known = None if answer.found is None else Known(answer.found.object_id, answer.found.version)
        miss_ms = None if query.asked_again else max(0.0, lesson.first_ms - query.overhead_ms)
        self.cache.note_miss(known, miss_ms, looked=query.may_work)

    def _forwarding_overhead(self, query: EdgeQuery) -> ExpectedAnswer:
        """What it takes longer to pass on a photo than if its features were here.

        An edge that looks into its cache has the features when it misses; an empty one sends the photo, or
        makes the features first. The difference belongs to f(0), not to the miss latency: else it would be
        counted against every cache size, and an edge once empty would find all others too slow.
        """
        if not query.has_image:
            return ExpectedAnswer(0.0, 0.0)
        extraction_ms = query.extraction_ms if query.may_work else None
        if self._forward != "auto":
            spent_ms = extraction_ms or 0.0 if self._forward == FEATURES else 0.0
            return ExpectedAnswer(spent_ms, spent_ms)
        image, size_bytes = Payload(IMAGE, query.image_bytes), self._next_tiers.features_bytes
        made = [] if extraction_ms is None else [Payload(FEATURES, size_bytes, extraction_ms)]
        ready = self._next_tiers.expected(CLOUD, [Payload(FEATURES, size_bytes), image])
        empty = self._next_tiers.expected(CLOUD, [*made, image])
        return ExpectedAnswer(
            max(0.0, empty.first_ms - ready.first_ms), max(0.0, empty.last_ms - ready.last_ms)
        )


@dataclass(slots=True, eq=False)
class _Call:
    """A request in the hands of the edge."""

    query: EdgeQuery
    flow: RequestFlow[EdgeQuery]
    cache: CatalogueCache | None
    context: CallContext
    answer: Future[RecognizeResponse] = field(default_factory=Future)
    response: RecognizeResponse | None = None
    """The cloud's, or that of its first of two."""


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
    next_tiers : NextTiers
        The cloud, and in which form it is asked.
    forward : {"auto", "features", "image"}
        The forms that are allowed.
    """

    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(
        self,
        caches: CatalogueCaches,
        services: EdgeServices,
        reader: QueryReader,
        next_tiers: NextTiers,
        forward: Forward,
    ) -> None:
        self._caches = caches
        self._cloud = services.cloud
        self._load = services.load
        self._reader = reader
        self._next_tiers = next_tiers
        self._forward = forward
        self._clock = services.clock

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Say what the image shows."""
        query = self._reader.read(request, context)
        cache = self._caches.get(context.catalogue)
        now_s = self._clock.monotonic()
        stages: list[EdgeObjectCache] = []
        if not query.asked_again:
            query.may_work = self._load.may_work()
        if cache is not None:
            stages.append(EdgeObjectCache(cache, self._load, self._next_tiers, self._forward))
        else:
            query.extraction_ms = _EXTRACTION_MS
        deadline_s = now_s + context.deadline.remaining_s()
        flow = RequestFlow(stages, self._next_tiers, EDGE, now_s, deadline_s)
        call = _Call(query, flow, cache, context)
        try:
            finish = self._carry_out(call, flow.begin(query, now_s, now_s))
        except NearsightError as error:
            flow.not_made(error, self._clock.monotonic())
            raise
        if finish is None:
            return call.answer
        return self._response(call, finish)

    def _carry_out(self, call: _Call, effect: Effect[EdgeQuery] | None) -> Finish[EdgeQuery] | None:
        """Carry out one effect after the other; None if the cloud was asked."""
        while not isinstance(effect, Finish):
            if effect is None:
                return None
            if isinstance(effect, Ask):
                self._ask(call, effect)
                return None
            if isinstance(effect, Look):
                found = effect.stage.look(call.query)
                effect = call.flow.looked(effect.stage, found, self._clock.monotonic())
            else:
                started_s = self._clock.monotonic()
                self._reader.extract(call.query)
                now_s = self._clock.monotonic()
                if call.cache is not None:
                    call.cache.profiler.observe_extraction((now_s - started_s) * 1e3)
                effect = call.flow.made(now_s)
        return effect

    def _ask(self, call: _Call, step: Ask) -> None:
        context, sent_s = call.context, self._clock.monotonic()
        request, blobs = call.query.message(step.form, again=step.again)
        if not step.again:
            # From now on somebody waits for it, and nobody can cancel it.
            call.answer.set_running_or_notify_cancel()
        reply = self._cloud.recognize(
            request,
            blobs,
            timeout_s=step.timeout_s,
            catalogue=context.catalogue,
            trace_id=context.trace_id,
            client_id=context.client_id,
        )
        sent_bytes = sum(map(len, blobs))
        reply.add_done_callback(lambda done: self._replied(call, step, done, sent_s, sent_bytes))

    def _replied(self, call: _Call, step: Ask, done: Future[Reply], sent_s: float, sent_bytes: int) -> None:
        now_s = self._clock.monotonic()
        call.context.next_tier_ms += (now_s - sent_s) * 1e3
        try:
            reply = _reply_of(done)
            answer = _answer_of(reply, sent_bytes)
            call.response = reply[1]
            effect = call.flow.replied(step.attempt, answer, now_s)
        except NearsightError as error:
            effect = call.flow.failed(step.attempt, error, now_s)
        finish = self._carry_out(call, effect)
        if finish is None:
            return
        try:
            response = self._response(call, finish)
        except NearsightError as error:
            call.answer.set_exception(error)
            return
        call.answer.set_result(response)
        self._learn(call, finish)

    def _response(self, call: _Call, finish: Finish[EdgeQuery]) -> RecognizeResponse:
        """The message to the device; counts what was recognised, and adds what may be asked for next.

        Raises
        ------
        NearsightError
            If there is no answer.
        """
        outcome = finish.outcome
        if isinstance(outcome, NearsightError):
            raise call.flow.last_error or outcome
        call.context.hops.extend(outcome.hops)
        response = call.response
        if response is None:
            response = RecognizeResponse(answered_by=outcome.answered_by, grain=outcome.grain)
            if outcome.found is not None:
                response.object.CopyFrom(recognized_object_to_proto(outcome.found))
        if outcome.found is not None and call.cache is not None:
            following = call.cache.observe(call.context.client_id, outcome.found.object_id)
            if following is not None:
                response.next_objects.CopyFrom(next_objects_to_proto(following, call.cache.revision))
        return response

    def _learn(self, call: _Call, finish: Finish[EdgeQuery]) -> None:
        if isinstance(finish.outcome, NearsightError):
            return
        if call.cache is None:
            self._caches.admit(call.context.catalogue)
        for stage in finish.learners:
            stage.learn(call.query, finish.outcome, finish.lesson)


def _reply_of(done: Future[Reply]) -> tuple[Reply, RecognizeResponse]:
    outcome = outcome_of(done)
    if isinstance(outcome, NearsightError):
        raise outcome
    if not isinstance(outcome.message, RecognizeResponse):
        raise InternalError("the cloud answered with another message")
    return outcome, outcome.message


def _answer_of(reply: tuple[Reply, RecognizeResponse], sent_bytes: int) -> Answer:
    outcome, message = reply
    found = None
    if message.HasField("object"):
        try:
            found = recognized_object_from_proto(message.object)
        except InvalidMessage as error:
            raise InternalError(f"the cloud sent a broken answer: {error.message}") from error
    grain = message.grain or OBJECT
    return Answer(found, message.answered_by, grain, outcome.hops, sent_bytes, outcome.received_bytes)
