"""The edge of the twin: the daemon's own `CatalogueCache`, load control and uplink; requests without sockets.

What happens to a request is told here once more, in virtual time (compare `edge/service.py`, which does it
with messages and threads). All that is decided and learnt is the code of the daemon, its background jobs
included: they run in a `VirtualWorker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from typing import cast

from prometheus_client import CollectorRegistry

from nearsight.common.caching.offload_choice import FEATURES, IMAGE
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import NearsightError, NotFound
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.envelope import Hop
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, EdgeNow, Prediction
from nearsight.edge.catalogue_cache import CatalogueCache, Known
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.load import RECOGNIZE, LoadControl
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.model_supply import ModelsAnswer
from nearsight.edge.prediction_service import answer_ms
from nearsight.edge.service import LEAST_REPETITION_S
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_holder import SnapshotHolder
from nearsight.edge.uplink import Surplus, Uplink
from nearsight.experiments.twin.cloud import (
    QUERY_FEATURES,
    Answered,
    Question,
    Reply,
    TwinCloudClient,
)
from nearsight.experiments.twin.cost_model import (
    ANSWER_BYTES,
    BYTES_PER_FEATURE,
    BYTES_PER_PREDICTION,
    MODEL_OVERHEAD_BYTES,
    Costs,
)
from nearsight.experiments.twin.events import Action, EventQueue
from nearsight.experiments.twin.photos import TwinSnapshot
from nearsight.experiments.twin.processor import Call, Processor, Server
from nearsight.experiments.twin.worker import VirtualWorker

EDGE = "edge"
_CATALOGUE = "museum"
_REPORT_S, _REPORTS = 0.00026, 10
"""CPU time of an edge for a report of an earlier visitor, decisions that follow included: measured, 0.25 to
0.27 ms; and reports between two looks of the twin at who else wants the core."""
_TAUGHT_STRETCH = 1.4
"""Of builds while reports come: both threads want the interpreter. Measured without other processes: 10
models took 1.3 to 2.4 times as long as alone, 83 to 96 models 1.0 to 1.8 times."""


class TwinSnapshotHolder(SnapshotHolder):
    """Snapshots that take their time to build."""

    def __init__(self, worker: VirtualWorker, costs: Costs) -> None:  # nothing to check, no super().__init__
        self._worker = worker
        self._costs = costs
        self.snapshot: ObjectRecognizer = TwinSnapshot({})

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        """Index these models, in virtual time."""
        by_id = {model.object_id: model for model in models}
        self._worker.spend(self._costs.build_s(len(by_id)))
        return TwinSnapshot(by_id)

    def swap(self, snapshot: ObjectRecognizer) -> None:
        """Answer from this snapshot once it is built."""
        self._worker.when_finished(lambda: super(TwinSnapshotHolder, self).swap(snapshot))

    @property
    def look(self) -> TwinSnapshot:
        """What answers now."""
        return cast("TwinSnapshot", self.snapshot)


class TwinEdge:
    """One edge with the cache of one catalogue.

    Parameters
    ----------
    events : EventQueue
        Time.
    processor : Processor
        Its cores.
    cloud : TwinCloudClient
        The cloud behind it.
    costs : Costs
        What it spends.
    settings : EdgeSettings
        As of the daemon.
    """

    def __init__(
        self,
        events: EventQueue,
        processor: Processor,
        cloud: TwinCloudClient,
        costs: Costs,
        settings: EdgeSettings,
    ) -> None:
        self._events = events
        self._clock = events.clock
        self._cloud = cloud
        self._costs = costs
        self.processor = processor
        self.server = Server(events, processor, settings.server, costs.model.together)
        self.worker = VirtualWorker(events, processor)
        servers = min(settings.server.workers, processor.cores)
        self.load = LoadControl(settings.multi_user, settings.load, servers, events.clock)
        self._uplink = Uplink(settings.forward, settings.recognition.query_features)
        self._holder = TwinSnapshotHolder(self.worker, costs)
        services = EdgeServices(
            cast("CloudClient", cloud),  # the calls that caches make
            self.worker,
            EdgeMetrics(CollectorRegistry()),
            self.worker,
            costs.edge_profile(processor.profiled),
            self.load,
        )
        self.cache = CatalogueCache(_CATALOGUE, cloud.listing, settings, services, self._holder)
        self.cache.start()

    def teach(self, requests: Iterable[tuple[str, str]], taught: Action) -> None:
        """Devices of before report (device, object), one after the other; then ``taught`` is called."""
        self.worker.stretch = _TAUGHT_STRETCH
        self._learn_next(iter(requests), taught)

    def _learn_next(self, left: Iterator[tuple[str, str]], taught: Action) -> None:
        some = list(islice(left, _REPORTS))

        def learn() -> None:
            for device, object_id in some:
                self.cache.note_device_hit(device, object_id)
            self._learn_next(left, taught)

        if some:
            self.processor.run(_REPORT_S * len(some), learn)
        else:
            self.worker.stretch = 1.0
            taught()

    # Recognition

    def recognize(self, question: Question, device_id: str, deadline_s: float, answered: Answered) -> None:
        """A question arrives."""
        self.load.arrived(RECOGNIZE)
        self.server.offer(
            Call(deadline_s, lambda call: self._begin(call, question, device_id, answered), answered)
        )

    def _begin(
        self, call: Call, question: Question, device_id: str, answered: Answered
    ) -> tuple[float, Action]:
        request = _EdgeRequest(question, device_id, call, answered)
        if question.asked_again:
            return self._costs.small_s, lambda: self._pass_on(request, looked=False)
        may_work = self.load.may_work()
        surplus = self._surplus(request, may_work=may_work)
        request.surplus_ms = surplus.first_ms
        self.cache.profiler.observe_query(image=question.image, surplus_ms=surplus.last_ms)
        size = self.cache.size
        if not may_work:
            return self._costs.small_s, lambda: self._pass_on(request, looked=False)
        if not size:
            return self._costs.small_s, lambda: self._pass_on(request, looked=True)
        found = self._holder.look.look(question.photo, question.features)
        effort = question.photo.tier_effort
        extraction_s = self._costs.edge_extraction_s(effort) if question.image else 0.0
        lookup_s = self._costs.edge_lookup_s(size, found=found is not None, effort=effort)
        request.extracted, request.surplus_ms = True, 0.0
        return (
            extraction_s + lookup_s,
            lambda: self._looked(request, found, size, extraction_s, lookup_s),
        )

    def _looked(
        self,
        request: _EdgeRequest,
        found: RecognizedObject | None,
        size: int,
        extraction_s: float,
        lookup_s: float,
    ) -> None:
        spent_s = self._clock.now_s - request.call.started_s
        stretch = spent_s / (extraction_s + lookup_s)  # a core may have been waited for
        if extraction_s:
            self.cache.profiler.observe_extraction(extraction_s * stretch * 1e3)
        self.cache.profiler.observe_lookup(size, lookup_s * stretch * 1e3)
        self.load.computed(spent_s * 1e3)
        if found is None:
            self._pass_on(request, looked=True)
            return
        prediction = self._learn(request.device_id, found)
        self.cache.note_hit(found.object_id)
        self._answer(request, Reply(found, EDGE, ()), prediction)

    def _learn(self, device_id: str, found: RecognizedObject) -> Prediction | None:
        following = self.cache.observe(device_id, found.object_id)
        return None if following is None else self._prediction(following)

    def _prediction(self, following: NextObjects) -> Prediction:
        return Prediction(following.top(MOST_NEXT_OBJECTS), self.cache.revision)

    def _answer(self, request: _EdgeRequest, reply: Reply, prediction: Prediction | None) -> None:
        size = ANSWER_BYTES + BYTES_PER_PREDICTION * (len(prediction.following) if prediction else 0)
        call, question = request.call, request.question
        total_ms = (self._clock.now_s - call.started_s) * 1e3
        hop = Hop(
            EDGE,
            call.queue_ms,
            max(0.0, total_ms - request.next_tier_ms),
            request.next_tier_ms,
            question.size_bytes,
            size,
        )
        request.answered(replace(reply, hops=(*reply.hops, hop), prediction=prediction, size_bytes=size))

    # Misses

    def _pass_on(self, request: _EdgeRequest, *, looked: bool) -> None:
        request.passed_on_s = self._clock.now_s
        request.looked = looked
        sent = self._forwarded(request)
        if sent is not None:
            self._send(request, sent, None)

    def _surplus(self, request: _EdgeRequest, *, may_work: bool) -> Surplus:
        if not request.question.image:
            return Surplus()
        extraction_ms = self.cache.profiler.extraction_ms if may_work else None
        return self._uplink.surplus(request.question.size_bytes, extraction_ms)

    def _forwarded(self, request: _EdgeRequest) -> Question | None:
        """What the cloud gets; None if its features are extracted first."""
        question = request.question
        if not question.image:
            return question
        features_bytes = QUERY_FEATURES * BYTES_PER_FEATURE if request.extracted else None
        extraction_ms = self.cache.profiler.extraction_ms if request.looked else None
        if not self._uplink.sends_features(question.size_bytes, features_bytes, extraction_ms):
            return question
        as_features = replace(
            question, image=False, features=QUERY_FEATURES, size_bytes=QUERY_FEATURES * BYTES_PER_FEATURE
        )
        if request.extracted:
            return as_features
        spent_s = self._costs.edge_extraction_s(question.photo.tier_effort)
        self.processor.run(spent_s, lambda: self._send(request, as_features, None))
        self.cache.profiler.observe_extraction(spent_s * self.processor.slowness * 1e3)
        return None

    def _send(self, request: _EdgeRequest, sent: Question, unknown: Reply | None) -> None:
        sent_s = self._clock.now_s
        self._cloud.ask(
            sent,
            request.call.deadline_s,
            lambda outcome: self._replied(request, sent, sent_s, outcome, unknown),
        )

    def _replied(
        self,
        request: _EdgeRequest,
        sent: Question,
        sent_s: float,
        outcome: Reply | NearsightError,
        unknown: Reply | None,
    ) -> None:
        spent_ms = (self._clock.now_s - sent_s) * 1e3
        request.next_tier_ms += spent_ms
        if unknown is None:
            request.first_ms = (self._clock.now_s - request.passed_on_s) * 1e3
        question = request.question
        if isinstance(outcome, NearsightError):
            if unknown is None:
                request.answered(outcome)
            else:
                self._miss_answered(request, unknown, asked_twice=True)
            return
        self._uplink.observe(IMAGE if sent.image else FEATURES, sent.size_bytes, spent_ms, outcome.hops)
        again_s = request.call.deadline_s - self._clock.now_s
        if question.image and not sent.image and outcome.found is None and again_s >= LEAST_REPETITION_S:
            self._send(request, replace(question, asked_again=True), outcome)
            return
        self._miss_answered(request, outcome, asked_twice=unknown is not None)

    def _miss_answered(self, request: _EdgeRequest, reply: Reply, *, asked_twice: bool) -> None:
        found = reply.found
        prediction = self._learn(request.device_id, found) if found is not None else None
        self._answer(request, reply, prediction)
        known = Known(found.object_id, found.version) if found is not None else None
        again = request.question.asked_again
        if request.question.image and not again:
            self._uplink.observe_outcome(unknown=asked_twice or found is None)
        miss_ms = None if again else max(0.0, request.first_ms - request.surplus_ms)
        self.cache.note_miss(known, miss_ms, looked=request.looked)

    # What devices ask besides

    def next_objects(
        self,
        device_id: str,
        object_id: str,
        deadline_s: float,
        answered: Callable[[Future[Prediction]], None],
    ) -> None:
        """A device reports what it recognised itself."""
        done: Future[Prediction] = Future()

        def end() -> None:
            following = self.cache.note_device_hit(device_id, object_id)
            if following is None:
                done.set_exception(NotFound("no such object"))
            else:
                done.set_result(replace(self._prediction(following), now=self._now(call.queue_ms)))
            answered(done)

        def refuse(error: NearsightError) -> None:
            done.set_exception(error)
            answered(done)

        call = Call(deadline_s, lambda _call: (self._costs.small_s, end), refuse)
        self.server.offer(call)

    def _now(self, queue_ms: float) -> EdgeNow | None:
        """What a photo would take here; the device adds its way."""
        here_ms = answer_ms(queue_ms, self.load, self.cache.size)
        return EdgeNow(here_ms, 0.0) if here_ms else None

    def get_models(
        self,
        object_ids: Sequence[str],
        deadline_s: float,
        answered: Callable[[FetchedModels | NearsightError], None],
    ) -> None:
        """A device asks for models."""

        def come(done: Future[ModelsAnswer]) -> None:
            error = done.exception()
            if isinstance(error, NearsightError):
                answered(error)
                return
            answer = done.result()
            size = sum(model.size_bytes + MODEL_OVERHEAD_BYTES for model in answer.models)
            revision = self.cache.revision
            answered(FetchedModels(answer.models, answer.missing, {}, answer.left_out, revision, size))

        def end() -> None:
            remaining_s = deadline_s - self._clock.now_s
            self.cache.supply.for_device(object_ids, remaining_s).add_done_callback(come)

        self.server.offer(Call(deadline_s, lambda _call: (self._costs.small_s, end), answered))

    def list_objects(self, deadline_s: float, answered: Callable[[Listing | NearsightError], None]) -> None:
        """A device asks which objects there are."""
        listing = self._cloud.listing
        self.server.offer(
            Call(deadline_s, lambda _call: (self._costs.small_s, lambda: answered(listing)), answered)
        )


class _EdgeRequest:
    """A request in the hands of the edge."""

    __slots__ = (
        "answered",
        "call",
        "device_id",
        "extracted",
        "first_ms",
        "looked",
        "next_tier_ms",
        "passed_on_s",
        "question",
        "surplus_ms",
    )

    def __init__(self, question: Question, device_id: str, call: Call, answered: Answered) -> None:
        self.question = question
        self.device_id = device_id
        self.surplus_ms = 0.0
        self.call = call
        self.answered = answered
        self.extracted = False
        self.looked = False
        self.passed_on_s = 0.0
        self.first_ms = 0.0
        self.next_tier_ms = 0.0
