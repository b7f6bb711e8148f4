"""A device of the twin: the SDK's own request flow, offload choice and prefetcher, on a virtual clock.

One photo goes the way of `device/preparation.py` and `device/remote_tier.py`: a lookup in the device's
snapshot; then the form that is answered sooner, to the tier that the `RequestFlow` names; and once more as an
image if features were unknown. The prefetcher is the SDK's, with its snapshots, models held and forecasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from nearsight.common.caching.offload_choice import FEATURES, IMAGE
from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.envelope import Hop
from nearsight.device.circuit_breaker import CircuitBreaker
from nearsight.device.engine import LARGEST_RESERVE_S
from nearsight.device.offloading import Offloading
from nearsight.device.prefetching.avoidable_latency import AvoidableLatency
from nearsight.device.prefetching.controller import PrefetchController, PrefetchSources
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import LocalCache, LocalSnapshot
from nearsight.device.recognition import TierAnswer
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.device.remote_tier import LEAST_REPETITION_S
from nearsight.device.request_flow import Ask, Finish, Phase, RequestFlow
from nearsight.experiments.rig.replay import Ledger
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cloud import QUERY_FEATURES, Answered, Question, Reply
from nearsight.experiments.twin.cost_model import (
    ANSWER_BYTES,
    BYTES_PER_FEATURE,
    Costs,
)
from nearsight.experiments.twin.edge import EDGE, TwinEdge
from nearsight.experiments.twin.edge_source import EdgeSource
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.link import Connection, TwinLink
from nearsight.experiments.twin.neighbourhood import TwinNeighbourhood, TwinPeer
from nearsight.experiments.twin.photos import TwinPhoto, TwinSnapshot
from nearsight.experiments.twin.processor import Processor
from nearsight.experiments.twin.worker import VirtualWorker

DEVICE = "device"
_EXTRACTOR = OrbExtractor(RecognitionSettings().fast_threshold)
"""Never asked in the twin; the parts that could ask it want one."""

Asks = Callable[[Question, float, Answered], None]
"""Puts a question to a tier, over whatever lies between: question, deadline, what to do with the answer."""


@dataclass(slots=True, eq=False)
class _Request:
    """One photo on its way through the device."""

    number: int
    photo: TwinPhoto
    flow: RequestFlow
    question: Question | None = None
    looked_for: frozenset[str] = frozenset()


class TwinCache(LocalCache):
    """Answers from a snapshot as soon as it is built."""

    def __init__(self, empty: LocalSnapshot, worker: VirtualWorker) -> None:
        super().__init__(empty)
        self._worker = worker

    def swap(self, snapshot: LocalSnapshot) -> None:
        """Answer from this snapshot once the worker is done with it."""
        self._worker.when_finished(lambda: super(TwinCache, self).swap(snapshot))


class TwinDevice:
    """One visitor's device.

    Parameters
    ----------
    events : EventQueue
        Time.
    name : str
        Of the visitor.
    processor : Processor
        Its cores.
    tiers : mapping of str to callable
        In the order in which they are asked.
    costs : Costs
        What it spends.
    settings : RecognizerSettings
        As of the SDK.
    ledger : Ledger
        Where requests and outcomes are entered.
    """

    def __init__(
        self,
        events: EventQueue,
        name: str,
        processor: Processor,
        tiers: Mapping[str, Asks],
        costs: Costs,
        settings: RecognizerSettings,
        ledger: Ledger,
    ) -> None:
        self._events = events
        self._clock = events.clock
        self.name = name
        self.processor = processor
        self._tiers = tiers
        self._costs = costs
        self._settings = settings
        self.ledger = ledger
        self._breakers = {tier: CircuitBreaker(settings.breaker) for tier in tiers}
        self._workers = settings.image_workers
        self._queue: list[_Request] = []
        self._pending = 0
        self._offloading = Offloading(tiers, _EXTRACTOR, settings.prefetch.recognition, self._clock)
        self._cache: LocalCache | None = None
        self._profiler: DeviceProfiler | None = None
        self.prefetcher: PrefetchController | None = None
        self.peer: TwinPeer | None = None

    def prefetch(
        self, edge: TwinEdge, air: TwinLink, neighbours: TwinNeighbourhood | None, rng: random.Random
    ) -> None:
        """Recognise on the device, with models of devices nearby, if it shares, and of this edge."""
        settings = self._settings.prefetch
        profile = self._costs.device_profile(self.processor.profiled)
        worker = VirtualWorker(self._events, self.processor)

        def build(models: Sequence[ObjectModel], recognition: RecognitionSettings) -> ObjectRecognizer:
            del recognition
            worker.spend(self._costs.build_s(len(models)))
            return TwinSnapshot({model.object_id: model for model in models})

        self._cache = TwinCache(LocalSnapshot(TwinSnapshot({}), profile.feature_counts[-1]), worker)
        self._profiler = DeviceProfiler(
            profile, AvoidableLatency(settings.miss_prior_ms, settings.miss_window)
        )
        way_s = self._costs.one_way_s(self.processor.slowness, edge.processor.slowness)
        source = EdgeSource(self._events, self.name, edge, air, way_s)
        held = HeldModels(settings.memory_bytes)
        sources = PrefetchSources(source, source, source)
        if neighbours is not None:
            self.peer = TwinPeer(
                self._events, neighbours, self.processor, air, self._costs, held, source, rng
            )
            sources = self.peer.sources()
        self.prefetcher = PrefetchController(
            "museum",
            self._cache,
            self._profiler,
            held,
            sources,
            settings,
            worker,
            background=worker,
            build=build,
        )

    # The life of a request

    def recognize(self, planned: PlannedPhoto, photo: TwinPhoto, timeout_s: float) -> None:
        """A photo is due."""
        now_s = self._clock.now_s
        number = self.ledger.sent(planned, now_s, 0.0)
        if self._pending >= self._settings.max_pending:
            self.ledger.completed(number, Overloaded("too many requests are in flight"), now_s)
            return
        flow = RequestFlow(
            self._breakers,
            self._settings,
            started_at_s=now_s,
            deadline_s=now_s + timeout_s - min(LARGEST_RESERVE_S, timeout_s / 20),
        )
        request = _Request(number, photo, flow)
        self._pending += 1
        self._queue.append(request)
        self._prepare_next()
        self._events.at(flow.deadline_s, lambda: self._step(request, flow.expired(self._clock.now_s)))

    def _prepare_next(self) -> None:
        while self._workers and self._queue:
            request = self._queue.pop(0)
            if request.flow.phase is Phase.DONE:
                continue
            self._workers -= 1
            request.flow.preparing(self._clock.now_s)
            self._prepare(request)

    def _work(self, work_s: float, done: Callable[[float], None]) -> None:
        started_s = self._clock.now_s
        self.processor.run(work_s, lambda: done(self._clock.now_s - started_s))

    def _prepare(self, request: _Request) -> None:
        snapshot = self._cache.snapshot if self._cache is not None else None
        if snapshot is None or not len(snapshot):
            self._offload(request, None)
            return
        request.looked_for = snapshot.names
        k, features = len(snapshot), snapshot.query_features
        found = cast("TwinSnapshot", snapshot.recognizer).look(request.photo, features)
        effort = request.photo.device_effort(features)
        work_s = self._costs.device_lookup_s(k, features, found=found is not None, effort=effort)
        self._work(work_s, partial(self._looked, request, k, features, found))

    def _looked(
        self, request: _Request, k: int, features: int, found: RecognizedObject | None, spent_s: float
    ) -> None:
        if self._profiler is not None:
            self._profiler.observe_lookup(k, features, spent_s * 1e3)
        if found is None:
            self._offload(request, features)
            return
        if self.prefetcher is not None:
            self.prefetcher.note_local(found, _NO_FEATURES)
        self._work(self._costs.model.hand_over_ms / 1e3, lambda _spent_s: self._known(request, found))

    def _known(self, request: _Request, found: RecognizedObject) -> None:
        self._workers += 1
        self._step(request, request.flow.recognized_here(TierAnswer(found, DEVICE), self._clock.now_s))
        self._prepare_next()

    def _offload(self, request: _Request, extracted: int | None) -> None:
        """Choose the form; make features if that is what is sent and they are not there."""
        complete = extracted if extracted is not None and extracted >= QUERY_FEATURES else None
        size = request.photo.size_bytes
        now_s = self._clock.now_s
        healthy = (name for name, breaker in self._breakers.items() if breaker.healthy(now_s))
        tier = next(healthy, next(iter(self._tiers)))
        work_s = self._costs.model.prepare_ms / 1e3
        # A device that never looks itself sends what it was given.
        if self.prefetcher is None or self._offloading.choose(tier, size, complete).form == IMAGE:
            request.question = Question(request.photo, image=True, features=QUERY_FEATURES, size_bytes=size)
        else:
            size = QUERY_FEATURES * BYTES_PER_FEATURE
            request.question = Question(request.photo, image=False, features=QUERY_FEATURES, size_bytes=size)
            if complete is None:
                extraction_s = self._costs.device_extraction_s(request.photo.device_effort(QUERY_FEATURES))
                self._offloading.note_extraction(extraction_s * self.processor.slowness * 1e3)
                work_s += extraction_s
        self._work(work_s, lambda _spent_s: self._prepared(request))

    def _prepared(self, request: _Request) -> None:
        self._workers += 1
        self._step(request, request.flow.prepared(self._clock.now_s))
        self._prepare_next()

    def _step(self, request: _Request, step: Ask | Finish | None) -> None:
        if isinstance(step, Finish):
            self._pending -= 1
            self.ledger.completed(request.number, step.outcome, self._clock.now_s)
        elif isinstance(step, Ask) and request.question is not None:
            asking = _Asking(request, step, self._clock.now_s, self._clock.now_s + step.timeout_s)
            self._put(asking, request.question)
            self._events.at(asking.until_s, lambda: self._timed_out(asking))

    def _timed_out(self, asking: _Asking) -> None:
        if not asking.settled:
            self._settle(asking, DeadlineExceeded(f"no answer from the {asking.step.tier} in time"))

    def _put(self, asking: _Asking, question: Question) -> None:
        sent_s = self._clock.now_s
        asks = self._tiers[asking.step.tier]
        asks(question, asking.until_s, lambda outcome: self._arrived(asking, question, sent_s, outcome))

    def _arrived(
        self, asking: _Asking, question: Question, sent_s: float, outcome: Reply | NearsightError
    ) -> None:
        if asking.settled:
            return
        now_s = self._clock.now_s
        if isinstance(outcome, NearsightError):
            self._settle(asking, asking.first if asking.first is not None else outcome)
            return
        sent, received = asking.sent_bytes + question.size_bytes, asking.received_bytes + outcome.size_bytes
        answer = TierAnswer(outcome.found, outcome.answered_by, outcome.hops, sent, received)
        again = not question.image and outcome.found is None
        if again and asking.until_s - now_s >= LEAST_REPETITION_S:
            asking.first, asking.sent_bytes, asking.received_bytes = answer, sent, received
            self._observe(asking, question, outcome, sent_s)
            size = asking.request.photo.size_bytes
            self._put(asking, replace(question, image=True, size_bytes=size, asked_again=True))
            return
        self._settle(asking, answer)
        self._tell(asking, question, outcome, sent_s)

    def _tell(self, asking: _Asking, question: Question, reply: Reply, sent_s: float) -> None:
        """What `LocalRecognition.tier_replied` does with an answer."""
        now_s, tier = self._clock.now_s, asking.step.tier
        own = self._observe(asking, question, reply, sent_s)
        unknown = asking.first is not None or reply.found is None
        behind_ms = own.next_tier_ms if own is not None else 0.0
        self._offloading.observe_outcome(tier, unknown=unknown, behind_ms=behind_ms)
        found = reply.found
        if self._profiler is not None:
            avoidable = not unknown and found is not None and found.object_id not in asking.request.looked_for
            waited_ms, round_trip_ms = (now_s - asking.asked_s) * 1e3, (now_s - sent_s) * 1e3
            tier_ms = round_trip_ms - behind_ms
            at_edge_ms = own.queue_ms + own.compute_ms if own is not None and tier == EDGE else None
            transfer_ms = tier_ms - at_edge_ms if at_edge_ms is not None else None
            self._profiler.observe_answer(waited_ms, tier_ms, avoidable=avoidable, transfer_ms=transfer_ms)
        if found is not None and self.prefetcher is not None:
            self.prefetcher.note_answer(found, reply.prediction, None, seen_by_edge=tier == EDGE)

    def _observe(self, asking: _Asking, question: Question, reply: Reply, sent_s: float) -> Hop | None:
        tier = asking.step.tier
        own = next((hop for hop in reply.hops if hop.tier == tier), None)
        form = IMAGE if question.image else FEATURES
        round_trip_ms = (self._clock.now_s - sent_s) * 1e3
        self._offloading.observe(tier, form, question.size_bytes, round_trip_ms, own)
        return own

    def _settle(self, asking: _Asking, outcome: TierAnswer | NearsightError) -> None:
        asking.settled = True
        flow, attempt, now_s = asking.request.flow, asking.step.attempt, self._clock.now_s
        if isinstance(outcome, NearsightError):
            self._step(asking.request, flow.failed(attempt, outcome, now_s))
        else:
            self._step(asking.request, flow.answered(attempt, outcome, now_s))


@dataclass(slots=True, eq=False)
class _Asking:
    """A question that one tier was asked, with what it said so far."""

    request: _Request
    step: Ask
    asked_s: float
    until_s: float
    first: TierAnswer | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    settled: bool = False


_NO_FEATURES = cast("Features", None)
"""Nobody nearby learns from the twin's photos."""


def over(
    link: TwinLink, way_s: float, stretch: Callable[[], float], ask: Asks, connect_s: float = 0.0
) -> Asks:
    """A tier at the other end of a link; in daemons each way takes ``way_s``, this time so much longer.

    The first question waits for the connection, which takes daemons ``connect_s`` besides.
    """
    connection = Connection(link, connect_s)

    def put(question: Question, deadline_s: float, answered: Answered) -> None:
        this_s = way_s * stretch()

        def back(outcome: Reply | NearsightError) -> None:
            size = outcome.size_bytes if isinstance(outcome, Reply) else ANSWER_BYTES
            link.down(size, lambda: answered(outcome), this_s)

        def send() -> None:
            link.up(question.size_bytes, lambda: ask(question, deadline_s, back), this_s)

        connection.when_there(send)

    return put
