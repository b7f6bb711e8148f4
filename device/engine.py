"""The shell around `RequestFlow`: the lock, the threads and the futures that carry events to it.

Every event of every request passes `RequestEngine._apply` under one lock, so that each request has one order
of events and one outcome. The lock is held for microseconds: images are prepared on a small pool, tiers
answer through futures, callbacks run on a thread of their own, and one timer thread watches the deadlines.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, DeadlineExceeded, InternalError, NearsightError, Overloaded
from nearsight.common.logging import get_logger
from nearsight.device.circuit_breaker import BreakerState, CircuitBreaker
from nearsight.device.handle import RequestHandle
from nearsight.device.query import Query, QuerySource
from nearsight.device.recognition import Attempt, Recognition, TierAnswer
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.device.request_flow import Ask, Finish, Phase, RequestFlow

Outcome = Recognition | NearsightError
Deliver = Callable[[Outcome], None]

_log = get_logger("device.engine")

LARGEST_RESERVE_S = 0.05
"""The outcome is fixed at most this long before the deadline, so that the callback is there in time."""


class Tier(Protocol):
    """Somebody who can be asked what an image shows."""

    def ask(self, query: Query, *, timeout_s: float, trace_id: str) -> Future[TierAnswer]:
        """Start asking; the future completes within ``timeout_s`` with an answer or a NearsightError."""

    def close(self) -> None:
        """Free sockets and threads; questions that are open fail."""


class RecognizerObserver(Protocol):
    """Told about every outcome; for metrics. Must be quick and thread-safe."""

    def on_outcome(self, outcome: Outcome, attempts: tuple[Attempt, ...], latency_ms: float) -> None:
        """One request ended."""


@dataclass(slots=True, eq=False)
class _Request:
    """What the shell keeps of a request beside its state machine."""

    number: int
    flow: RequestFlow
    deliver: Deliver
    handle: RequestHandle
    source: QuerySource | None = None
    query: Query | None = None
    question: Future[TierAnswer] | None = None


class RequestEngine:
    """Runs requests against tiers.

    Parameters
    ----------
    tiers : mapping of name to Tier
        In the order in which they should be asked.
    prepare : callable
        Turns what the application gave into a `Query`, or recognises it at once; runs on the pool; raises
        NearsightError.
    settings : RecognizerSettings
        Deadlines, limits, number of workers.
    clock : Clock
        Must run in real time: the timer thread sleeps by it.
    observer : RecognizerObserver, optional
        Metrics hook.
    """

    def __init__(
        self,
        tiers: Mapping[str, Tier],
        prepare: Callable[[QuerySource], Query | TierAnswer],
        settings: RecognizerSettings,
        clock: Clock,
        observer: RecognizerObserver | None = None,
    ) -> None:
        self._tiers = tiers
        self._prepare_query = prepare
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._breakers = {name: CircuitBreaker(settings.breaker) for name in tiers}
        self._states_told = self.breaker_states()
        self._numbers = itertools.count()
        self._pending: dict[int, _Request] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._closed = False
        self._lock = threading.Lock()
        self._deadlines_changed = threading.Condition(self._lock)
        self._pool = ThreadPoolExecutor(settings.image_workers, thread_name_prefix="nearsight-images")
        self._timer = threading.Thread(target=self._watch_deadlines, name="nearsight-deadlines", daemon=True)
        self._timer.start()

    @property
    def pending(self) -> int:
        """Requests in flight."""
        return len(self._pending)

    def breaker_states(self) -> dict[str, BreakerState]:
        """The state of each tier's circuit breaker."""
        return {name: breaker.state for name, breaker in self._breakers.items()}

    def submit(self, source: QuerySource, deliver: Deliver, timeout_s: float) -> RequestHandle:
        """Start a request; ``deliver`` is called exactly once, from any thread, and must not block."""
        now_s = self._clock.monotonic()
        request = self._new_request(source, deliver, timeout_s, now_s)
        refusal = None
        with self._lock:
            refusal = self._refusal(timeout_s)
            if refusal is None:
                self._pending[request.number] = request
                heapq.heappush(self._deadlines, (request.flow.deadline_s, request.number))
                self._deadlines_changed.notify()
                self._pool.submit(self._prepare, request)
        if refusal is not None:
            self._end(request, refusal)
        return request.handle

    def close(self) -> None:
        """End all requests in flight with `Cancelled`, then free the tiers. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            left = list(self._pending.values())
            self._deadlines_changed.notify()
        for request in left:
            self._end(request, Cancelled("the recognizer was closed before the answer came"))
        self._pool.shutdown(wait=False, cancel_futures=True)
        for tier in self._tiers.values():
            tier.close()
        if threading.current_thread() is not self._timer:
            self._timer.join()

    def _new_request(self, source: QuerySource, deliver: Deliver, timeout_s: float, now_s: float) -> _Request:
        trace_id = uuid.uuid4().hex[:16]
        flow = RequestFlow(
            self._breakers,
            self._settings,
            started_at_s=now_s,
            deadline_s=now_s + timeout_s - min(LARGEST_RESERVE_S, timeout_s / 20),
            trace_id=trace_id,
        )
        handle = RequestHandle(trace_id, lambda: self._end(request, Cancelled("the request was cancelled")))
        request = _Request(next(self._numbers), flow, deliver, handle, source)
        return request

    def _refusal(self, timeout_s: float) -> NearsightError | None:
        if self._closed:
            return Cancelled("the recognizer is closed", advice="create a new Recognizer")
        if timeout_s <= 0:
            return DeadlineExceeded(f"the deadline had passed before the request began ({timeout_s:g} s)")
        if len(self._pending) >= self._settings.max_pending:
            return Overloaded(
                f"{len(self._pending)} requests are in flight already",
                advice="wait for answers, or raise max_pending",
            )
        return None

    def _apply(self, request: _Request, event: Callable[[float], Ask | Finish | None]) -> bool:
        """Give the request's state machine an event and do what it says; whether the event had an effect."""
        with self._lock:
            now_s = self._clock.monotonic()
            step = event(now_s)
            if isinstance(step, Finish):
                self._pending.pop(request.number, None)
                request.handle.settle(step.outcome)
                request.deliver(step.outcome)
            changes = self._breaker_changes()
        for tier, state in changes:
            _log_breaker(tier, state, request.flow.last_error)
        if isinstance(step, Ask):
            self._ask(request, step)
        elif isinstance(step, Finish):
            self._finished(request, step.outcome, now_s)
        return step is not None

    def _breaker_changes(self) -> list[tuple[str, BreakerState]]:
        """Tiers that began to cool down, or came back, since the last call."""
        changes: list[tuple[str, BreakerState]] = []
        for tier, breaker in self._breakers.items():
            state = breaker.state
            if state is not BreakerState.PROBING and state is not self._states_told[tier]:
                changes.append((tier, state))
                self._states_told[tier] = state
        return changes

    def _end(self, request: _Request, error: NearsightError) -> bool:
        return self._apply(request, lambda _now_s: request.flow.end(error))

    def _finished(self, request: _Request, outcome: Outcome, now_s: float) -> None:
        question, request.question, request.source, request.query = request.question, None, None, None
        if question is not None:
            question.cancel()
        if self._observer is not None:
            latency_ms = (now_s - request.flow.started_at_s) * 1000
            self._observer.on_outcome(outcome, request.flow.attempts, latency_ms)

    def _prepare(self, request: _Request) -> None:
        """Make the image ready, on the pool."""
        with self._lock:
            source = request.source
            if source is None:
                return
            request.flow.preparing(self._clock.monotonic())
        try:
            prepared = self._prepare_query(source)
        except NearsightError as error:
            self._end(request, error)
            return
        except Exception as error:  # noqa: BLE001  a bug here must not leave a request without an outcome
            _log.exception("preparing an image failed", trace_id=request.flow.trace_id)
            self._end(request, _internal(error))
            return
        if isinstance(prepared, TierAnswer):
            self._apply(request, partial(request.flow.recognized_here, prepared))
            return
        request.query = prepared
        self._apply(request, request.flow.prepared)

    def _ask(self, request: _Request, step: Ask) -> None:
        query = request.query
        if query is None:  # it ended between the decision and now
            return
        try:
            question = self._tiers[step.tier].ask(
                query, timeout_s=step.timeout_s, trace_id=request.flow.trace_id
            )
        except NearsightError as error:
            self._apply(request, partial(request.flow.failed, step.attempt, error))
            return
        request.question = question
        if request.flow.phase is Phase.DONE:  # it ended while the question was put: nobody waits any more
            question.cancel()
        question.add_done_callback(partial(self._question_done, request, step.attempt))

    def _question_done(self, request: _Request, attempt: int, question: Future[TierAnswer]) -> None:
        if question.cancelled():
            return
        error = question.exception()
        if error is None:
            self._apply(request, partial(request.flow.answered, attempt, question.result()))
            return
        if not isinstance(error, NearsightError):
            _log.error("asking a tier failed", trace_id=request.flow.trace_id, exc_info=error)
            error = _internal(error)
        self._apply(request, partial(request.flow.failed, attempt, error))

    def _watch_deadlines(self) -> None:
        while (expired := self._next_expired()) is not None:
            for request in expired:
                self._apply(request, request.flow.expired)

    def _next_expired(self) -> list[_Request] | None:
        """Wait for deadlines to pass; None when closed."""
        with self._lock:
            while not self._closed:
                now_s = self._clock.monotonic()
                expired = []
                while self._deadlines and self._deadlines[0][0] <= now_s:
                    request = self._pending.get(heapq.heappop(self._deadlines)[1])
                    if request is not None:
                        expired.append(request)
                if expired:
                    return expired
                self._deadlines_changed.wait(self._deadlines[0][0] - now_s if self._deadlines else None)
        return None


def _log_breaker(tier: str, state: BreakerState, error: NearsightError | None) -> None:
    if state is BreakerState.COOLING:
        _log.warning("a tier keeps failing and is asked last for a while", tier=tier, reason=str(error))
    else:
        _log.info("a tier is back", tier=tier)


def _internal(error: BaseException) -> InternalError:
    return InternalError(f"unexpected {type(error).__name__} in the SDK", advice="see the log, and report it")
