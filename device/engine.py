"""The SDK's driver of `RequestFlow`: the lock, the threads and the futures that deliver its events.

Every event of every request passes through `RequestEngine._apply` under one lock, so each request has one
order of events and one outcome. The lock is held for microseconds. A small pool processes images, tiers
answer through futures, callbacks run on a separate thread, and a background worker ends expired requests.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, InternalError, NearsightError, Overloaded
from nearsight.common.logging import get_logger
from nearsight.common.request.answer import Answer, Attempt
from nearsight.common.request.effects import Ask, Effect, Encode, Extract, Finish, Look, Stage
from nearsight.common.request.flow import RequestFlow
from nearsight.common.request.next_tiers import BreakerState, NextTiers
from nearsight.device.image_sources import QuerySource
from nearsight.device.query import DeviceQuery
from nearsight.device.recognition import Recognition, RequestHandle, recognition_of
from nearsight.device.recognizer_settings import RequestSettings
from nearsight.device.tiers import RemoteTier

Outcome = Recognition | NearsightError
Deliver = Callable[[Outcome], None]

_log = get_logger("device.engine")

DEVICE = "device"
_LARGEST_RESERVE_S = 0.05
_STOP_S = 5.0


def reserve_s(timeout_s: float) -> float:
    """Time before its deadline at which a request ends, so that the callback runs in time."""
    return min(_LARGEST_RESERVE_S, timeout_s / 20)


class RecognizerObserver(Protocol):
    """Receives every outcome; for metrics. Must be quick and thread-safe."""

    def on_outcome(self, outcome: Outcome, attempts: tuple[Attempt, ...], latency_ms: float) -> None:
        """One request ended."""


@dataclass(slots=True, eq=False)
class _Request:
    """State of a request in the driver, beside its flow."""

    number: int
    flow: RequestFlow[DeviceQuery]
    deliver: Deliver | None
    handle: RequestHandle
    one_look: bool
    only_here: bool
    source: QuerySource | None = None
    query: DeviceQuery | None = None


class RequestEngine:
    """Executes requests.

    Parameters
    ----------
    tiers : mapping of name to RemoteTier
        In the order in which they are called.
    make_query : callable
        Converts the application's image to a query; runs on the pool; raises NearsightError.
    stages : sequence of Stage
        Stages that may answer on the device itself.
    settings : RequestSettings
        Deadlines, limits, number of workers.
    clock : Clock
        Must run in real time, because the thread that waits for deadlines sleeps by it.
    next_tiers : NextTiers
        Chooses the tier and the form of each request.
    observers : sequence of RecognizerObserver
        Receive outcomes, for metrics and the device's cache.
    """

    def __init__(
        self,
        tiers: Mapping[str, RemoteTier],
        make_query: Callable[[QuerySource], DeviceQuery],
        stages: Sequence[Stage[DeviceQuery]],
        settings: RequestSettings,
        clock: Clock,
        next_tiers: NextTiers,
        observers: Sequence[RecognizerObserver] = (),
    ) -> None:
        self._tiers = tiers
        self._make_query = make_query
        self._stages = stages
        self._settings = settings
        self._clock = clock
        self._next_tiers = next_tiers
        self._observers = observers
        self._cooling: set[str] = set()  # tiers that were logged as cooling down
        self._numbers = itertools.count()
        self._pending: dict[int, _Request] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(settings.image_workers, thread_name_prefix="nearsight-images")
        self._deadlines = BackgroundWorker(clock, "nearsight-deadlines")
        self._deadlines.start()

    @property
    def pending(self) -> int:
        """Number of requests in flight."""
        return len(self._pending)

    def submit(
        self,
        source: QuerySource,
        deliver: Deliver | None,
        timeout_s: float,
        *,
        one_look: bool = False,
        only_here: bool = False,
        stages: Sequence[Stage[DeviceQuery]] | None = None,
        trace_id: str = "",
    ) -> RequestHandle:
        """Start a request; ``deliver`` is called exactly once, from any thread, and must not block.

        If ``deliver`` is None, only the handle gets the outcome. ``stages`` replace those of the device;
        ``one_look`` as in `Query`, ``only_here`` as in `RequestFlow`. An empty ``trace_id`` becomes a random
        one.
        """
        now_s = self._clock.monotonic()
        deadline_s = now_s + timeout_s - reserve_s(timeout_s)
        stages = self._stages if stages is None else stages
        flow = RequestFlow(stages, self._next_tiers, DEVICE, now_s, deadline_s, only_here=only_here)
        number = next(self._numbers)
        # The handle refers to its request by number: a reference would make a cycle, which would keep each
        # photo in memory until Python's garbage collection.
        handle = RequestHandle(trace_id or uuid.uuid4().hex[:16], partial(self._cancel, number))
        request = _Request(number, flow, deliver, handle, one_look, only_here, source)
        with self._lock:
            refused = self._closed or len(self._pending) >= self._settings.max_pending
            if not refused:
                self._pending[number] = request
                self._deadlines.submit(self._expire, name="expire", after_s=deadline_s - now_s)
                self._work_soon(request)
        if refused:
            self._end(request, self._refusal())
        return handle

    def call_soon(self, job: Callable[[], object]) -> None:
        """Call a function on the thread that waits for deadlines; it may be `close`."""
        self._deadlines.submit(job)

    def close(self) -> None:
        """End all requests in flight with `Cancelled`, then free the tiers. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            left = list(self._pending.values())
        for request in left:
            self._end(request, Cancelled("the recognizer was closed before the answer came"))
        self._pool.shutdown(wait=False, cancel_futures=True)
        for tier in self._tiers.values():
            tier.close()
        with suppress(RuntimeError):  # called in this thread, which cannot wait for itself
            self._deadlines.stop(_STOP_S)

    def _refusal(self) -> NearsightError:
        if self._closed:
            return Cancelled("the recognizer is closed", advice="create a new Recognizer")
        return Overloaded(
            f"{self._settings.max_pending} requests are in flight already",
            advice="wait for answers, or raise max_pending",
        )

    def _cancel(self, number: int) -> bool:
        request = self._pending.get(number)
        return request is not None and self._end(request, Cancelled("the request was cancelled"))

    def _end(self, request: _Request, error: NearsightError) -> bool:
        return self._apply(request, lambda _now_s: request.flow.end(error)) is not None

    def _work_soon(self, request: _Request, effect: Effect[DeviceQuery] | None = None) -> None:
        """Let a thread of the pool do the work, or a new one: pools end with the main thread of a program."""
        try:
            self._pool.submit(self._work, request, effect)
        except RuntimeError:
            if self._closed:  # in the meantime: the request has its outcome
                return
            work = threading.Thread(
                target=self._work, args=(request, effect), name="nearsight-image", daemon=False
            )
            work.start()

    def _work(self, request: _Request, effect: Effect[DeviceQuery] | None = None) -> None:
        """Start or continue a request on the pool, until a tier is called or the request ends."""
        flow, source, query = request.flow, request.source, request.query
        if source is None:  # the request has ended in the meantime
            return
        try:
            if query is None:
                begun_s = self._clock.monotonic()
                query = request.query = self._make_query(source)
                query.one_look = request.one_look
                effect = self._apply(request, partial(flow.begin, query, begun_s))
            while True:
                if isinstance(effect, Look):
                    found = effect.stage.look(query)
                    effect = self._apply(request, partial(flow.looked, effect.stage, found))
                elif isinstance(effect, (Extract, Encode)):
                    query.do(effect)
                    effect = self._apply(request, flow.made)
                else:
                    return
        except NearsightError as error:
            self._apply(request, partial(flow.not_made, error))
        except Exception as error:  # noqa: BLE001  after a bug, a request must still get an outcome
            _log.exception("working on an image failed", trace_id=request.handle.trace_id)
            kind, advice = type(error).__name__, "see the log, and report it"
            self._end(request, InternalError(f"unexpected {kind} in the SDK", advice=advice))

    def _replied(self, request: _Request, attempt: int, outcome: Answer | NearsightError) -> None:
        flow = request.flow
        if isinstance(outcome, NearsightError):
            effect = self._apply(request, partial(flow.failed, attempt, outcome))
        else:
            effect = self._apply(request, partial(flow.replied, attempt, outcome))
        if flow.last_error is not None or self._cooling:
            self._log_breakers(flow.last_error)
        if isinstance(effect, (Extract, Encode)):
            self._work_soon(request, effect)

    def _apply(
        self, request: _Request, event: Callable[[float], Effect[DeviceQuery] | None]
    ) -> Effect[DeviceQuery] | None:
        """Pass an event to the request's flow; call a tier or finish if that is the effect."""
        with self._lock:
            now_s = self._clock.monotonic()
            effect = event(now_s)
            outcome: Outcome | None = None
            if isinstance(effect, Finish):
                ended, handle = effect.outcome, request.handle
                self._pending.pop(request.number, None)
                if isinstance(ended, NearsightError):
                    outcome = ended.with_traceback(None)  # its frames refer to the photo
                    handle.outcome.set_exception(outcome)
                else:
                    reused = request.query.reused if request.query is not None else 0.0
                    outcome = recognition_of(request.flow, ended, now_s, handle.trace_id, reused)
                    handle.outcome.set_result(outcome)
                if request.deliver is not None:
                    request.deliver(outcome)
        if isinstance(effect, Finish) and outcome is not None:
            self._finished(request, effect, outcome, now_s)
        elif isinstance(effect, Ask) and (query := request.query) is not None:
            # Otherwise the request ended between the decision and this line.
            done = partial(self._replied, request, effect.attempt)
            try:
                self._tiers[effect.tier].ask(query, effect, request.handle.trace_id, done)
            except NearsightError as error:
                done(error)
        return effect

    def _finished(
        self, request: _Request, finish: Finish[DeviceQuery], outcome: Outcome, now_s: float
    ) -> None:
        query, request.source, request.query = request.query, None, None
        if isinstance(finish.outcome, Answer) and query is not None:
            for stage in finish.learners:
                stage.learn(query, finish.outcome, finish.lesson)
        in_vain = request.only_here and isinstance(outcome, NearsightError)  # no request has failed
        for observer in () if in_vain else self._observers:
            latency_ms = (now_s - request.flow.started_at_s) * 1000
            try:
                observer.on_outcome(outcome, tuple(request.flow.attempts), latency_ms)
            except Exception:  # noqa: BLE001  other requests must still end, also those that `close` ends
                _log.exception("an observer failed", trace_id=request.handle.trace_id)

    def _log_breakers(self, error: NearsightError | None) -> None:
        """Log tiers that began to cool down, or recovered, since the last call."""
        with self._lock:
            states = self._next_tiers.states()
            began = [
                tier
                for tier, state in states.items()
                if state is BreakerState.COOLING and tier not in self._cooling
            ]
            back = [tier for tier in self._cooling if states[tier] is BreakerState.CLOSED]
            self._cooling.update(began)
            self._cooling.difference_update(back)
        for tier in began:
            _log.warning("a tier keeps failing and is called last for a while", tier=tier, reason=str(error))
        for tier in back:
            _log.info("a tier has recovered", tier=tier)

    def _expire(self) -> None:
        """End the requests whose deadline has passed; repeated at the next deadline."""
        now_s = self._clock.monotonic()
        try:
            for request in list(self._pending.values()):
                if request.flow.deadline_s <= now_s:
                    self._apply(request, request.flow.expired)
                    self._log_breakers(request.flow.last_error)
        finally:
            deadlines_s = [request.flow.deadline_s for request in list(self._pending.values())]
            next_s = min((one for one in deadlines_s if one > now_s), default=None)
            if next_s is not None:
                self._deadlines.submit(self._expire, name="expire", after_s=next_s - now_s)
