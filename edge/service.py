"""The Recognition service of the edge: the daemon's driver of the request flow (`common/request/flow.py`).

A worker of the server carries out effects until there is an answer, or a request to the cloud. Then the
worker is free. The thread that receives the cloud's reply carries out the other effects, except
those for the standby, which has threads of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from nearsight.common.background.futures import completed
from nearsight.common.errors import NearsightError, Overloaded
from nearsight.common.inference.leases import Lease
from nearsight.common.object_cache.next_objects import next_objects_to_proto
from nearsight.common.recognition.codec import recognized_object_to_proto
from nearsight.common.request.answer import NETWORK, Answer, answer_of
from nearsight.common.request.effects import Ask, Effect, Extract, Finish, Look, Stage
from nearsight.common.request.flow import RequestFlow
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.envelope import Hop
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.cloud_client import error_of_cloud
from nearsight.edge.inference.networks import EdgeNetworks
from nearsight.edge.inference.stage import NetworkStage
from nearsight.edge.query import EdgeQuery
from nearsight.edge.services import CLOUD, EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.standby.standbys import Standbys
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import RecognizeRequest, RecognizeResponse

EDGE = "edge"
_EXTRACTION_MS = 10.0  # assumed before the catalogue has a cache


@dataclass(slots=True, eq=False)
class _Call:
    """A request in progress."""

    query: EdgeQuery
    flow: RequestFlow[EdgeQuery]
    cache: CatalogueCache | None
    context: CallContext
    answer: Future[RecognizeResponse] = field(default_factory=Future)
    response: RecognizeResponse | None = None
    """Latest response of the cloud; None before the first."""


@dataclass(eq=False)
class EdgeRecognitionService(Service):
    """The Recognition service of the edge."""

    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    caches: CatalogueCaches
    """Recognition caches."""
    networks: EdgeNetworks
    """Answer requests for names without a catalogue of objects."""
    services: EdgeServices
    """Objects that all caches share; among them the client of the cloud, for misses."""
    settings: EdgeSettings
    """Recognition, and the form in which queries are passed on."""
    standbys: Standbys
    """Answer requests when the cloud fails."""

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Recognise the object in the image."""
        query = EdgeQuery.of(request, context, self.settings.recognition, self.settings.forward)
        name = context.catalogue
        if not query.asked_again:
            query.may_work = self.services.load.may_work()
        cache = self.caches.get(name)
        if cache is None and self.networks.takes_photos(name):
            return self._ask_network(query, context)
        return self._recognize(query, context, cache.stages if cache is not None else (), cache)

    def _ask_network(
        self, query: EdgeQuery, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Answer with a network, here or at the cloud. It cannot use features; the image may follow."""
        if not query.has_image:
            return RecognizeResponse(answered_by=EDGE, grain=NETWORK)
        query.only_image = True
        found = None
        if query.may_work or query.asked_again:
            found = self.networks.admit(context.catalogue, lambda _, other: bool(other.labels))
        if found is None:
            return self._recognize(query, context, ())

        def look(lease: Lease) -> RecognizeResponse | Future[RecognizeResponse]:
            stage = NetworkStage(lease, context.deadline.at_s, self.services)
            return self._recognize(query, context, (stage,))

        if isinstance(found, Lease):
            with found:
                return look(found)
        return self.networks.memory.jobs.when_loaded(
            found,
            look,
            context.deadline.remaining_s(),
            otherwise=lambda: _in_future(self._recognize(query, context, ())),
        )

    def _recognize(
        self,
        query: EdgeQuery,
        context: CallContext,
        stages: Sequence[Stage[EdgeQuery]],
        cache: CatalogueCache | None = None,
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Process a query in the request flow."""
        now_s = self.services.clock.monotonic()
        if cache is None:
            query.extraction_ms = _EXTRACTION_MS
        deadline_s = context.deadline.at_s
        flow = RequestFlow(
            stages,
            self.services.next_tiers,
            EDGE,
            now_s,
            deadline_s,
            standby=cache.standby if cache is not None else None,
        )
        call = _Call(query, flow, cache, context)
        try:
            finish = self._carry_out(call, flow.begin(query, now_s, now_s))
        except NearsightError as error:
            flow.not_made(error, self.services.clock.monotonic())
            raise
        if finish is None:
            return call.answer
        response = self._response(call, finish)
        for stage in finish.learners:  # none if there is only one stage
            if isinstance(finish.outcome, Answer):
                stage.learn(call.query, finish.outcome, finish.lesson)
        return response

    def _carry_out(self, call: _Call, effect: Effect[EdgeQuery] | None) -> Finish[EdgeQuery] | None:
        """Carry out effects until the flow finishes; None if a request was sent to the cloud."""
        while not isinstance(effect, Finish):
            if effect is None:
                return None
            if isinstance(effect, Ask):
                self._ask(call, effect)
                return None
            if isinstance(effect, Look):
                found = effect.stage.look(call.query)
                effect = call.flow.looked(effect.stage, found, self.services.clock.monotonic())
            else:
                started_s = self.services.clock.monotonic()
                call.query.extract()
                now_s = self.services.clock.monotonic()
                extraction_ms = (now_s - started_s) * 1e3
                if call.cache is not None:
                    call.cache.profiler.observe_extraction(extraction_ms)
                effect = call.flow.made(now_s)
                if not isinstance(effect, Look):  # otherwise the stage includes it in its compute time
                    self.services.load.computed(extraction_ms)
        return effect

    def _ask(self, call: _Call, step: Ask) -> None:
        context, sent_s = call.context, self.services.clock.monotonic()
        request, blobs = call.query.message(step.form, again=step.again)
        if not step.again:
            # From now on the server waits for the answer, and it cannot be cancelled.
            call.answer.set_running_or_notify_cancel()
        reply: Future[Reply] = self.services.cloud.recognition.recognize.future(
            request,
            timeout_s=step.timeout_s,
            blobs=blobs,
            catalogue=context.catalogue,
            trace_id=context.trace_id,
            client_id=context.client_id,
        )
        sent_bytes = sum(map(len, blobs))
        reply.add_done_callback(partial(self._replied, call, step, sent_s, sent_bytes))

    def _replied(self, call: _Call, step: Ask, sent_s: float, sent_bytes: int, done: Future[Reply]) -> None:
        now_s = self.services.clock.monotonic()
        call.context.next_tier_ms += (now_s - sent_s) * 1e3
        try:
            answer, call.response = answer_of(done.result(), CLOUD, sent_bytes)
            effect = call.flow.replied(step.attempt, answer, now_s)
        except NearsightError as error:
            effect = call.flow.failed(step.attempt, error_of_cloud(error), now_s)
        if isinstance(effect, Extract | Look):  # for the standby; this thread receives other replies
            self.standbys.run(partial(self._continue, call, effect))
        else:
            self._continue(call, effect)

    def _continue(self, call: _Call, effect: Effect[EdgeQuery] | None) -> None:
        """Carry out the effects after a reply, and complete the answer if the flow finishes."""
        now_s = self.services.clock.monotonic()
        if now_s >= call.flow.deadline_s:
            effect = call.flow.expired(now_s) or effect
        try:
            finish = self._carry_out(call, effect)
            if finish is None:
                return
            response = self._response(call, finish)
        except NearsightError as error:
            call.answer.set_exception(error.with_traceback(None))
            return
        call.answer.set_result(response)
        name = call.context.catalogue
        if call.response is not None and call.response.grain == NETWORK:
            self.networks.forwarded(name, call.context.next_tier_ms)
        elif call.cache is None:
            self._admit(call, finish)
        if isinstance(finish.outcome, Answer):
            for stage in finish.learners:
                stage.learn(call.query, finish.outcome, finish.lesson)

    def _admit(self, call: _Call, finish: Finish[EdgeQuery]) -> None:
        """Create the cache of a catalogue, and count this request in it, so that it is not lost."""
        admitted = self.caches.admit(call.context.catalogue)
        found = finish.outcome.found if isinstance(finish.outcome, Answer) else None
        if found is None:
            return
        device_id, object_id = call.context.client_id, found.object_id

        def note(cache: Future[CatalogueCache]) -> None:
            if cache.exception() is None:
                cache.result().note_first(device_id, object_id)

        admitted.add_done_callback(note)

    def _response(self, call: _Call, finish: Finish[EdgeQuery]) -> RecognizeResponse:
        """Create the response to the device; count the recognised object, and add predicted objects.

        Raises
        ------
        NearsightError
            If there is no answer.
        """
        outcome = finish.outcome
        if isinstance(outcome, NearsightError):
            error = call.flow.last_error or outcome
            if isinstance(error, Overloaded):
                call.context.hops.append(Hop(error.tier))  # the device then skips that tier
            raise error
        call.context.hops.extend(outcome.hops)
        response = call.response
        if response is None:
            response = RecognizeResponse(answered_by=outcome.answered_by, grain=outcome.grain)
            if outcome.found is not None:
                response.object.CopyFrom(recognized_object_to_proto(outcome.found))
        look = call.query.result_look
        response.thumbnail_wanted = look is not None and look.known
        if outcome.found is not None and call.cache is not None:
            following = call.cache.observe(call.context.client_id, outcome.found.object_id)
            if following is not None:
                revision = call.cache.listing.revision
                response.next_objects.CopyFrom(next_objects_to_proto(following, revision))
        return response


def _in_future(response: RecognizeResponse | Future[RecognizeResponse]) -> Future[RecognizeResponse]:
    return response if isinstance(response, Future) else completed(response)
