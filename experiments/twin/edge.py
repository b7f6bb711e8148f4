"""The edge of the twin: the daemon's own request flow, object cache and load control, in virtual time.

This is the twin's driver of the flow (compare `edge/service.py`, with messages and threads). The daemon's
background jobs run in a `VirtualWorker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

from prometheus_client import CollectorRegistry

from nearsight.common.background.futures import completed, then
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import DeadlineExceeded, NearsightError, NotFound
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.effects import Ask, Effect, Extract, Finish, Look
from nearsight.common.request.flow import RequestFlow
from nearsight.common.request.forms import IMAGE
from nearsight.common.request.next_tiers import BYTES_PER_FEATURE
from nearsight.common.rpc.envelope import Hop
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, EdgeTimes, Prediction
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.load import RECOGNIZE, LoadControl
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.query import EdgeQuery
from nearsight.edge.service import EDGE
from nearsight.edge.services import EdgeServices, next_tiers
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_holder import SnapshotHolder
from nearsight.experiments.twin.cloud import QUERY_FEATURES, TwinCloudClient
from nearsight.experiments.twin.cost_model import Costs, slowed
from nearsight.experiments.twin.events import Action
from nearsight.experiments.twin.link import (
    OnReply,
    Reply,
    TierRequest,
    TwinLink,
    answer_bytes,
    call_over_link,
    models_bytes,
    report_outcome,
)
from nearsight.experiments.twin.photos import TwinSnapshot
from nearsight.experiments.twin.processor import Call, Processor, Server, VirtualWorker
from nearsight.experiments.twin.results import RESULT_LOOK_S, THUMBNAIL_S, TwinResultStage

_CATALOGUE = "museum"
_FEATURES_BYTES = QUERY_FEATURES * BYTES_PER_FEATURE
_RECOGNITION = RecognitionSettings(query_features=QUERY_FEATURES)
_REPORT_S, _REPORTS = 0.00026, 10
"""CPU time of an edge for one reported request, with the decisions that follow [s] (measured: 0.25 to 0.27
ms); and the number of reports that are computed in one piece."""
_WARM_UP_STRETCH = 1.4
"""Factor on the time of builds while reports are processed, because both threads need the interpreter.
Measured without other processes: 10 models took 1.3 to 2.4 times as long as alone, 83 to 96 models 1.0 to 1.8
times."""


class TwinSnapshotHolder(SnapshotHolder):
    """Snapshot holder whose builds take virtual time."""

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


class TwinEdgeQuery(EdgeQuery):
    """A photo on its way through the edge, with the lookup's times [s], result and number of objects."""

    def __init__(self, tier_request: TierRequest, client: str) -> None:
        super().__init__(None, None, _RECOGNITION, asked_again=tier_request.asked_again, client=client)
        self.tier_request = tier_request
        self.has_image, self.image_bytes = tier_request.image, tier_request.size_bytes
        self.features_bytes = None if tier_request.image else tier_request.size_bytes
        self.photo_key = tier_request.photo
        self.result_s = self.extraction_s = self.lookup_s = 0.0
        self.found: RecognizedObject | None = None
        self.held = 0

    def sent(self, step: Ask) -> TierRequest:
        """The request for the cloud."""
        if not self.tier_request.image or step.form == IMAGE:
            return replace(self.tier_request, asked_again=step.again or self.asked_again)
        return replace(self.tier_request, image=False, size_bytes=_FEATURES_BYTES)


class TwinCatalogueCache(CatalogueCache):
    """The edge's own cache, with given lookup times instead of measured ones."""

    result_stage = TwinResultStage

    def _found(self, query: EdgeQuery) -> RecognizedObject | None:
        seen = cast("TwinEdgeQuery", query)
        work_s = seen.result_s + seen.extraction_s + seen.lookup_s
        # Larger than 1 if the photo waited for a core.
        stretch = (self.clock.monotonic() - seen.began_s) / work_s
        if seen.extraction_s:
            self.profiler.observe_extraction(seen.extraction_s * stretch * 1e3)
        self.profiler.observe_lookup(seen.held, seen.lookup_s * stretch * 1e3)
        return seen.found


class TwinEdge:
    """One edge with the cache of one catalogue.

    Parameters
    ----------
    processor : Processor
        Its cores.
    cloud : TwinCloudClient
        The cloud behind it.
    costs : Costs
        Its costs.
    settings : EdgeSettings
        Settings of the daemon.
    """

    def __init__(
        self,
        processor: Processor,
        cloud: TwinCloudClient,
        costs: Costs,
        settings: EdgeSettings,
    ) -> None:
        self._events = processor.events
        self._cloud = cloud
        self._costs = costs
        self.processor = processor
        self._server = Server(processor, settings.server, costs.model.together)
        self._catalogue_server = Server(processor, settings.server.model_copy(update={"workers": 1}))
        self.worker = VirtualWorker(processor)
        servers = min(settings.server.workers, processor.cores)
        self.load = LoadControl(settings.multi_user, settings.load, servers, self._events)
        self._next_tiers = next_tiers(settings.recognition.query_features)
        self._holder = TwinSnapshotHolder(self.worker, costs)
        services = EdgeServices(
            cast("CloudClient", cloud),  # the calls that caches make
            self.worker,
            EdgeMetrics(CollectorRegistry()),
            self.worker,
            slowed(costs.model.edge, processor.profiled),
            self.load,
            self._next_tiers,
        )
        self.cache = TwinCatalogueCache(_CATALOGUE, cloud.listing, settings, services, self._holder)
        self.cache.start()

    def warm_up(self, requests: Iterable[tuple[str, str]], done: Action) -> None:
        """Process earlier requests (device, object), one after the other; then call ``done``."""
        self.worker.stretch = _WARM_UP_STRETCH
        self._process_next(iter(requests), done)

    def _process_next(self, left: Iterator[tuple[str, str]], done: Action) -> None:
        some = list(islice(left, _REPORTS))

        def learn() -> None:
            for device, object_id in some:
                self.cache.note_device_hit(device, object_id)
            self._process_next(left, done)

        if some:
            self.processor.run(_REPORT_S * len(some), learn)
        else:
            self.worker.stretch = 1.0
            done()

    # Recognition

    def recognize(
        self, device_id: str, tier_request: TierRequest, deadline_s: float, answered: OnReply
    ) -> None:
        """Receive a request of a device."""
        self.load.arrived(RECOGNIZE)

        def begin(call: Call) -> tuple[float, Action]:
            query = TwinEdgeQuery(tier_request, device_id)
            if not query.asked_again:
                query.may_work = self.load.may_work()
            flow = RequestFlow(self.cache.stages, self._next_tiers, EDGE, self._events.now_s, deadline_s)
            return self._begin(_EdgeRequest(query, flow, call, answered))

        self._server.offer(Call(deadline_s, begin, answered))

    def _begin(self, request: _EdgeRequest) -> tuple[float, Action]:
        """The work of extraction and lookup [s], and the action that follows it."""
        query, flow, now_s = request.query, request.flow, self._events.now_s
        looks = query.may_work and self.cache.size > 0
        if not looks and self.cache.result is None:
            return self._costs.small_s, lambda: self._forward(request, now_s)
        photo, result_s = query.tier_request.photo, 0.0
        effect = flow.begin(query, now_s, now_s)
        if isinstance(effect, Look) and effect.stage is self.cache.result:
            result_s = query.result_s = RESULT_LOOK_S - THUMBNAIL_S * query.tier_request.thumbnail
            effect = flow.looked(effect.stage, effect.stage.look(query), now_s)
            looks = looks and query.may_work
        if isinstance(effect, Finish) or not looks:
            return result_s + self._costs.small_s * (not looks), lambda: self._carry_out(request, effect)
        if isinstance(effect, Extract):
            query.extraction_s = self._costs.edge_extraction_s(photo.tier_effort)
            query.features_bytes = _FEATURES_BYTES
            effect = flow.made(now_s)
        query.held = self.cache.size
        query.found = cast("TwinSnapshot", self._holder.snapshot).look(photo, QUERY_FEATURES)
        query.lookup_s = self._costs.edge_lookup_s(
            query.held, found=query.found is not None, effort=photo.tier_effort
        )
        work_s = result_s + query.extraction_s + query.lookup_s
        return work_s, lambda: self._looked(request, effect)

    def _forward(self, request: _EdgeRequest, begun_s: float) -> None:
        """Forward a photo without a lookup, unless the cache got its first objects in the meantime."""
        if request.query.may_work and self.cache.size > 0:
            self.processor.run(*self._begin(request))
        else:
            effect = request.flow.begin(request.query, begun_s, self._events.now_s)
            self._carry_out(request, effect)

    def _looked(self, request: _EdgeRequest, effect: Effect[EdgeQuery] | None) -> None:
        if isinstance(effect, Look):
            found = effect.stage.look(request.query)
            self._carry_out(request, request.flow.looked(effect.stage, found, self._events.now_s))

    def _carry_out(self, request: _EdgeRequest, effect: Effect[EdgeQuery] | None) -> None:
        if isinstance(effect, Finish):
            self._finish(request, effect)
        elif isinstance(effect, Ask):
            self._ask(request, effect)
        elif isinstance(effect, Extract):
            spent_s = self._costs.edge_extraction_s(request.query.tier_request.photo.tier_effort)
            extraction_ms = spent_s * self.processor.slowness * 1e3

            def extracted() -> None:
                self.load.computed(extraction_ms)
                request.query.features_bytes = _FEATURES_BYTES
                self._carry_out(request, request.flow.made(self._events.now_s))

            self.processor.run(spent_s, extracted)
            self.cache.profiler.observe_extraction(extraction_ms)

    def _ask(self, request: _EdgeRequest, step: Ask) -> None:
        tier_request, sent_s = request.query.sent(step), self._events.now_s

        def arrived(outcome: Reply | NearsightError) -> None:
            now_s = self._events.now_s
            request.next_tier_ms += (now_s - sent_s) * 1e3
            if now_s - sent_s > step.timeout_s:  # the daemon's call has ended, so it learns nothing from this
                outcome = DeadlineExceeded("no answer from the cloud in time")
            self._carry_out(
                request, report_outcome(request.flow, step.attempt, outcome, tier_request.size_bytes, now_s)
            )

        self._cloud.ask(tier_request, request.call.deadline_s, arrived)

    def _finish(self, request: _EdgeRequest, finish: Finish[EdgeQuery]) -> None:
        answer = finish.outcome
        if isinstance(answer, NearsightError):
            request.answered(request.flow.last_error or answer)
            return
        prediction = None
        if answer.found is not None:
            following = self.cache.observe(request.query.client, answer.found.object_id)
            prediction = None if following is None else self._prediction(following)
        call = request.call
        total_ms = (self._events.now_s - call.started_s) * 1e3
        hop = Hop(
            EDGE,
            call.queue_ms,
            max(0.0, total_ms - request.next_tier_ms),
            request.next_tier_ms,
            request.query.tier_request.size_bytes,
            answer_bytes(prediction),
        )
        hops = (*answer.hops, hop)
        look = request.query.result_look
        wanted = look is not None and look.known
        request.answered(Reply(answer.found, answer.answered_by, hops, prediction, answer.grain, wanted))
        for stage in finish.learners:
            stage.learn(request.query, answer, finish.lesson)

    def _prediction(self, following: NextObjects) -> Prediction:
        return Prediction(following.top(MOST_NEXT_OBJECTS), self.cache.listing.revision)

    # Small requests of devices

    def next_objects(
        self,
        device_id: str,
        object_id: str,
        deadline_s: float,
        answered: Callable[[Prediction | NearsightError], None],
    ) -> None:
        """Receive a device's report of an object that it recognised itself."""

        def end(call: Call) -> None:
            following = self.cache.note_device_hit(device_id, object_id)
            if following is None:
                answered(NotFound("no such object"))
                return
            # Without the transfer time, which the device adds.
            here_ms = self.load.answer_ms(call.queue_ms, self.cache.size)
            now = EdgeTimes(here_ms, 0.0) if here_ms else None
            answered(replace(self._prediction(following), now=now))

        self._server.serve(deadline_s, self._costs.small_s, end, answered)

    def get_models(
        self,
        object_ids: Sequence[str],
        deadline_s: float,
        answered: Callable[[FetchedModels | NearsightError], None],
    ) -> None:
        """Receive a device's request for models."""

        def come(done: Future[FetchedModels]) -> None:
            error = done.exception()
            if isinstance(error, NearsightError):
                answered(error)
                return
            found = done.result()
            answered(replace(found, size_bytes=models_bytes(found.models)))

        def end(_call: Call) -> None:
            remaining_s = deadline_s - self._events.now_s
            self.cache.supply.for_device(object_ids, remaining_s).add_done_callback(come)

        self._catalogue_server.serve(deadline_s, self._costs.small_s, end, answered)

    def list_objects(self, deadline_s: float, answered: Callable[[Listing | NearsightError], None]) -> None:
        """Receive a device's request for the listing."""

        def end(_call: Call) -> None:
            answered(self._cloud.listing)

        self._catalogue_server.serve(deadline_s, self._costs.small_s, end, answered)


@dataclass(slots=True, eq=False)
class _EdgeRequest:
    """A request that the edge processes."""

    query: TwinEdgeQuery
    flow: RequestFlow[EdgeQuery]
    call: Call
    answered: OnReply
    next_tier_ms: float = 0.0


class EdgeSource:
    """The edge as a source of a device's prefetcher: models, predictions, and the listing.

    Parameters
    ----------
    device_id : str
        The device.
    edge : TwinEdge
        Its edge.
    air : TwinLink
        The link to the edge.
    way_s : float
        Time that daemons spend on each way, in addition to the link [s].
    """

    def __init__(self, device_id: str, edge: TwinEdge, air: TwinLink, way_s: float) -> None:
        self._events = air.events
        self._device_id = device_id
        self._edge = edge
        self._call = partial(call_over_link, air, way_s)

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Request object models from the edge."""
        del catalogue
        return self._call(partial(self._edge.get_models, object_ids), timeout_s)

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Report a recognised object, and request the prediction of the next ones."""
        sent_s = left_s = self._events.now_s

        def serve(deadline_s: float, answered: Callable[[Prediction | NearsightError], None]) -> None:
            arrived_s = self._events.now_s

            def back(outcome: Prediction | NearsightError) -> None:
                nonlocal left_s
                left_s = sent_s + (self._events.now_s - arrived_s)
                answered(outcome)

            self._edge.next_objects(self._device_id, current, deadline_s, back)

        def timed(prediction: Prediction) -> Prediction:
            """Add the transfer time: the time of the call without the time that the edge spent."""
            if prediction.now is None:
                return prediction
            transfer_ms = max(0.0, (self._events.now_s - left_s) * 1e3)
            return replace(prediction, now=replace(prediction.now, transfer_ms=transfer_ms))

        return then(self._call(serve, timeout_s), timed)

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Request the listing."""
        return self._call(self._edge.list_objects, timeout_s)

    def get_revision(self, timeout_s: float) -> Future[int]:
        """The revision; it never changes."""
        del timeout_s
        return completed(self._edge.cache.listing.revision)
