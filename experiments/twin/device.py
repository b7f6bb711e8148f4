"""A device of the twin: the SDK's own request flow, object cache and prefetcher, on a virtual clock.

This is the twin's driver of the flow (compare `device/engine.py`, with threads and sockets).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from nearsight.common.errors import DeadlineExceeded, InternalError, NearsightError, Overloaded
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.answer import OBJECT
from nearsight.common.request.effects import Ask, Effect, Encode, Extract, Finish, Look, Stage, Work
from nearsight.common.request.flow import Phase, RequestFlow
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import BYTES_PER_FEATURE, AskRules, NextTiers
from nearsight.device.engine import DEVICE, reserve_s
from nearsight.device.local_recognition import DeviceObjectCache
from nearsight.device.prefetching.controller import PrefetchController, PrefetchSources
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import Build, LocalSnapshot, Snapshots
from nearsight.device.query import DeviceQuery, FormCosts
from nearsight.device.recognition import recognition_of
from nearsight.device.recognizer import COMPUTING_MS
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.edge.service import EDGE
from nearsight.experiments.rig.replay import Ledger
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cloud import QUERY_FEATURES
from nearsight.experiments.twin.cost_model import Costs
from nearsight.experiments.twin.edge import EdgeSource, TwinEdge
from nearsight.experiments.twin.link import Reply, TierAccess, TierRequest, TwinLink, report_outcome
from nearsight.experiments.twin.neighbourhood import TwinNeighbourhood, TwinPeer
from nearsight.experiments.twin.photos import TwinFeatures, TwinPhoto, TwinSnapshot
from nearsight.experiments.twin.processor import Processor, VirtualWorker
from nearsight.experiments.twin.results import RESULT_LOOK_S, THUMBNAIL_S, TwinResultStage


@dataclass(slots=True, eq=False)
class _Request:
    """One photo on its way through the device."""

    number: int
    query: TwinQuery
    flow: RequestFlow[DeviceQuery]


class TwinSnapshots(Snapshots):
    """Snapshots that answer as soon as they are built."""

    def __init__(
        self, empty: LocalSnapshot, settings: PrefetchSettings, worker: VirtualWorker, build: Build
    ) -> None:
        super().__init__(empty, settings.snapshots, settings.recognition, worker, build)
        self._worker = worker

    def swap(self, snapshot: LocalSnapshot) -> None:
        """Answer from this snapshot once the worker has finished building it."""
        self._worker.when_finished(lambda: super(TwinSnapshots, self).swap(snapshot))


class TwinDevice:
    """One visitor's device.

    Parameters
    ----------
    name : str
        Name of the visitor.
    processor : Processor
        Its cores.
    tiers : mapping of str to callable
        Access to each tier, in the order in which they are asked.
    costs : Costs
        Its costs.
    settings : RecognizerSettings
        Settings of the SDK.
    ledger : Ledger
        Records requests and outcomes.
    """

    def __init__(
        self,
        name: str,
        processor: Processor,
        tiers: Mapping[str, TierAccess],
        costs: Costs,
        settings: RecognizerSettings,
        ledger: Ledger,
    ) -> None:
        self._events = processor.events
        self._name = name
        self.processor = processor
        self._tiers = tiers
        self.costs = costs
        self._settings = settings
        self.ledger = ledger
        rules = AskRules(settings.tier_share, settings.breaker)
        self._next_tiers = NextTiers(tiers, rules, COMPUTING_MS, QUERY_FEATURES)
        self._workers = settings.image_workers
        self._queue: list[_Request] = []
        self._pending = 0
        self._stages: list[Stage[DeviceQuery]] = []
        self.form_costs = FormCosts()
        self.makes_thumbnails = False
        self.prefetcher: PrefetchController | None = None
        self.peer: TwinPeer | None = None

    def prefetch(
        self, edge: TwinEdge, air: TwinLink, neighbours: TwinNeighbourhood | None, rng: random.Random
    ) -> None:
        """Enable recognition on the device, with models from this edge and from neighbours (None: none)."""
        settings = self._settings.prefetch
        profile = self.costs.device_profile(self.processor.profiled)
        worker = VirtualWorker(self.processor)

        def build(models: Sequence[ObjectModel], recognition: RecognitionSettings) -> ObjectRecognizer:
            del recognition
            worker.spend(self.costs.build_s(len(models)))
            return TwinSnapshot({model.object_id: model for model in models})

        empty = LocalSnapshot(TwinSnapshot({}), profile.feature_counts[-1])
        snapshots = TwinSnapshots(empty, settings, worker, build)
        profiler = DeviceProfiler(profile, settings.miss_prior_ms, settings.miss_window)
        way_s = self.costs.one_way_s(self.processor.slowness, edge.processor.slowness)
        source = EdgeSource(self._name, edge, air, way_s)
        held = HeldModels(settings.memory_bytes)
        sources = PrefetchSources(source, source, source)
        if neighbours is not None:
            self.peer = TwinPeer(neighbours, self.processor, air, self.costs, held, source, rng)
            sources = self.peer.sources()
        self.prefetcher = PrefetchController(
            "museum",
            snapshots,
            profiler,
            held,
            sources,
            settings,
            worker,
            background=worker,
        )
        stage = DeviceObjectCache(snapshots, profiler, self.prefetcher, self._events)
        self._stages.append(stage)
        if self._settings.result_cache.enabled:
            prefetcher = self.prefetcher
            result = TwinResultStage(
                "museum", lambda: prefetcher.listing, self._settings.result_cache, self._events
            )
            self._stages.insert(0, result)
            prefetcher.list_objects()

    # The life of a request

    def recognize(self, planned: PlannedPhoto, photo: TwinPhoto, timeout_s: float) -> None:
        """Receive a photo that is due."""
        now_s = self._events.now_s
        number = self.ledger.sent(planned, now_s, 0.0)
        if self._pending >= self._settings.max_pending:
            self.ledger.completed(number, Overloaded("too many requests are in flight"), now_s)
            return
        deadline_s = now_s + timeout_s - reserve_s(timeout_s)
        flow = RequestFlow(self._stages, self._next_tiers, DEVICE, now_s, deadline_s)
        request = _Request(number, TwinQuery(photo, self), flow)
        self._pending += 1
        self._queue.append(request)
        self._begin_next()
        self._events.at(flow.deadline_s, lambda: self._carry_out(request, flow.expired(self._events.now_s)))

    def _begin_next(self) -> None:
        while self._workers and self._queue:
            request = self._queue.pop(0)
            if request.flow.phase is Phase.DONE:
                continue
            effect = request.flow.begin(request.query, self._events.now_s, self._events.now_s)
            self._workers -= not isinstance(effect, Finish)  # too little time was left
            self._carry_out(request, effect)

    def _carry_out(self, request: _Request, effect: Effect[DeviceQuery] | None) -> None:
        query = request.query
        if isinstance(effect, Finish):
            self._finish(request, effect)
        elif isinstance(effect, Ask):
            self._ask(request, effect)
        elif isinstance(effect, Look):
            work_s = query.look_s() if effect.stage.grain == OBJECT else RESULT_LOOK_S
            self.processor.run(work_s, lambda: self._looked(request, effect))
        elif isinstance(effect, (Extract, Encode)):
            if query.to_look(effect):  # its time is part of the lookup's
                self._carry_out(request, request.flow.made(self._events.now_s))
            else:
                self.processor.run(query.work_s(effect), partial(self._resume, request, request.flow.made))

    def _looked(self, request: _Request, effect: Look[DeviceQuery]) -> None:
        found = effect.stage.look(request.query)
        if found is None:
            following = request.flow.looked(effect.stage, None, self._events.now_s)
            if following is None or isinstance(following, Finish):  # the application no longer waits
                self._workers += 1
            self._carry_out(request, following)
            self._begin_next()
        else:
            known = partial(request.flow.looked, effect.stage, found)
            hand_over_s = self.costs.model.hand_over_ms / 1e3
            self.processor.run(hand_over_s, partial(self._resume, request, known))

    def _resume(self, request: _Request, step: Callable[[float], Effect[DeviceQuery] | None]) -> None:
        """Free a worker and continue; ``step`` gives the flow the time and returns the next effect."""
        self._workers += 1
        self._carry_out(request, step(self._events.now_s))
        self._begin_next()

    def _finish(self, request: _Request, finish: Finish[DeviceQuery]) -> None:
        outcome, now_s = finish.outcome, self._events.now_s
        self._pending -= 1
        if isinstance(outcome, NearsightError):
            self.ledger.completed(request.number, outcome, now_s)
        else:
            self.ledger.completed(request.number, recognition_of(request.flow, outcome, now_s), now_s)
            for stage in finish.learners:
                stage.learn(request.query, outcome, finish.lesson)
        if self.prefetcher is not None:
            self.prefetcher.process_notes()

    def _ask(self, request: _Request, step: Ask) -> None:
        now_s, query, flow = self._events.now_s, request.query, request.flow
        until_s = now_s + step.timeout_s
        tier_request = query.sent(step)

        def arrived(outcome: Reply | NearsightError) -> None:
            now_s = self._events.now_s
            if isinstance(outcome, Reply):
                query.prediction = outcome.prediction
                if step.tier == EDGE:
                    self.makes_thumbnails = outcome.thumbnail_wanted and self._settings.upload.thumbnails
            self._carry_out(
                request, report_outcome(flow, step.attempt, outcome, tier_request.size_bytes, now_s)
            )

        self._tiers[step.tier](tier_request, until_s, arrived)
        error = DeadlineExceeded(f"no answer from the {step.tier} in time")
        self._events.at(until_s, lambda: arrived(error))


class TwinQuery(DeviceQuery):
    """A photo on its way through a device of the twin, with given work times instead of measured ones."""

    def __init__(self, photo: TwinPhoto, device: TwinDevice) -> None:  # no super().__init__: no file
        self._seen = self.photo_key = photo
        self._device = device
        self.has_image = True
        self._looks_with = 0
        self._prepared = self._has_thumbnail = False
        self.snapshot = None
        self.began_s = 0.0
        self.lookup_features = None
        self.prediction = None
        self.result_look = None
        self.result_s = RESULT_LOOK_S * device.processor.slowness

    @property
    def _complete(self) -> bool:
        return self._looks_with >= QUERY_FEATURES

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The forms in which it can be sent."""
        both = self._device.form_costs.payloads(
            self._seen.size_bytes, features_bytes, extracted=self._complete
        )
        return both if self._device.prefetcher is not None else both[:1]

    def missing(self, form: str) -> Work | None:
        """The work before sending; it is needed once, in either form."""
        if self._prepared:
            return None
        self._prepared = True
        return Extract(QUERY_FEATURES) if form == FEATURES else Encode()

    def missing_features(self, count: int) -> Work | None:
        """Features are extracted for each lookup in the object cache."""
        return Extract(count) if count else None

    def features(self, count: int) -> Features:
        """Features in the form that a twin's snapshot accepts."""
        return cast("Features", TwinFeatures(self._seen, count))

    def to_look(self, work: Work) -> bool:
        """Whether this work is the extraction for the lookup that follows."""
        if self._prepared or not isinstance(work, Extract):
            return False
        self._looks_with = work.features
        return True

    def look_s(self) -> float:
        """Time of extraction and lookup [s]."""
        if self.snapshot is None:
            raise InternalError("a lookup without a snapshot")
        k, count = len(self.snapshot), self.snapshot.query_features
        found = cast("TwinSnapshot", self.snapshot.recognizer).look(self._seen, count)
        effort = self._seen.device_effort(count)
        return self._device.costs.device_lookup_s(k, count, found=found is not None, effort=effort)

    def work_s(self, work: Work) -> float:
        """Time of making the form that is sent [s]."""
        device = self._device
        prepare_s = device.costs.model.prepare_ms / 1e3
        if isinstance(work, Encode):
            self._has_thumbnail = device.makes_thumbnails
            return prepare_s + THUMBNAIL_S * self._has_thumbnail
        if self._complete:
            return prepare_s
        extraction_s = device.costs.device_extraction_s(self._seen.device_effort(QUERY_FEATURES))
        device.form_costs.extracted(extraction_s * device.processor.slowness * 1e3)
        return prepare_s + extraction_s

    def sent(self, step: Ask) -> TierRequest:
        """The request for the tier."""
        image = step.form == IMAGE
        size = self._seen.size_bytes if image else QUERY_FEATURES * BYTES_PER_FEATURE
        thumbnail = image and self._has_thumbnail
        return TierRequest(self._seen, image, size, asked_again=step.again, thumbnail=thumbnail)
