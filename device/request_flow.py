"""The life of one request as a state machine: events and times in, the next step out.

::

    PREPARING --recognised on the device-------------------------------> DONE
    PREPARING --image ready--> ASKING --answer-------------------------> DONE
        |                        |  ^
        |                        +--+ failure, another tier is left
        +--bad image, cancelled, deadline, closed ... at any moment ---> DONE

There is no socket, thread or clock in here. The shell (`RequestEngine`) serialises the events; whatever
comes after DONE changes nothing, which is what makes "exactly one outcome" hold under every order of events.

Who is asked, and for how long: healthy tiers in their order, then those that cool down. While another healthy
tier is left, a tier may use `RecognizerSettings.tier_share` of the remaining time; the last one gets all of
it. A tier that cools down is asked last rather than never: an edge without its cloud still knows what it has
cached, and where all tiers were down the first request after a repair succeeds.

Which failures pass to the next tier: all but INVALID_ARGUMENT, because the next tier would refuse the same
image. A wrong key or an unknown catalogue passes as well: keys and catalogues are set per tier, and a visitor
should not go without an answer because of a mistake in the set-up of the edge. The log names it, and if no
tier answers, this is the error that the application gets, since only a person can repair it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from nearsight.common.errors import (
    CallerError,
    DeadlineExceeded,
    InvalidArgument,
    NearsightError,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.client import Hop
from nearsight.device.circuit_breaker import CircuitBreaker, Permit
from nearsight.device.recognition import Attempt, Recognition, TierAnswer
from nearsight.device.recognizer_settings import RecognizerSettings

NO_TIER_ADVICE = "check that the edge or the cloud runs at the configured address"
SMALLEST_TRY_S = 0.01
"""With less time left than this no further tier is asked."""


class Phase(Enum):
    """Where a request is."""

    PREPARING = auto()
    ASKING = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Ask:
    """Step: put the question to this tier; ``attempt`` comes back with its answer or failure."""

    tier: str
    timeout_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Step: this is the outcome, the only one."""

    outcome: Recognition | NearsightError


@dataclass(slots=True)
class _Question:
    """The tier that is being asked at the moment."""

    tier: str
    permit: Permit
    asked_at_s: float
    timeout_s: float


class RequestFlow:
    """One request.

    Parameters
    ----------
    breakers : mapping of tier name to CircuitBreaker
        The tiers in the order in which they should be asked, with the breakers that all requests share.
    settings : RecognizerSettings
        Shares and limits.
    started_at_s, deadline_s : float
        When the application asked, and when the outcome must be known, on the shell's clock.
    trace_id : str
        Identity of the request in logs.
    """

    def __init__(
        self,
        breakers: Mapping[str, CircuitBreaker],
        settings: RecognizerSettings,
        *,
        started_at_s: float,
        deadline_s: float,
        trace_id: str = "",
    ) -> None:
        self._breakers = breakers
        self._settings = settings
        self._left = list(breakers)
        self._question: _Question | None = None
        self._attempts: list[Attempt] = []
        self._errors: list[NearsightError] = []
        self._prepare_started_s = started_at_s
        self._prepared_s = started_at_s
        self.started_at_s = started_at_s
        self.deadline_s = deadline_s
        self.trace_id = trace_id
        self.phase = Phase.PREPARING

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The tiers that were asked so far and have ended."""
        return tuple(self._attempts)

    @property
    def last_error(self) -> NearsightError | None:
        """How the last tier that failed did."""
        return self._errors[-1] if self._errors else None

    def preparing(self, now_s: float) -> None:
        """A worker took up the image: what passed until now was waiting."""
        self._prepare_started_s = now_s

    def prepared(self, now_s: float) -> Ask | Finish | None:
        """The image is ready to be sent."""
        if self.phase is not Phase.PREPARING:
            return None
        self._prepared_s = now_s
        self.phase = Phase.ASKING
        return self._ask_next(now_s)

    def recognized_here(self, answer: TierAnswer, now_s: float) -> Finish | None:
        """The device found the object by itself while it prepared the image: no tier is asked."""
        if self.phase is not Phase.PREPARING:
            return None
        self._prepared_s = now_s
        return self._recognized(answer, now_s)

    def answered(self, attempt: int, answer: TierAnswer, now_s: float) -> Finish | None:
        """A tier answered, be it with an object or with unknown."""
        question = self._ended(attempt, StatusCode.OK, now_s)
        if question is None:
            return None
        self._breakers[question.tier].succeeded()
        return self._recognized(answer, now_s)

    def _recognized(self, answer: TierAnswer, now_s: float) -> Finish:
        recognition = Recognition(
            object=answer.found,
            answered_by=answer.answered_by,
            latency_ms=(now_s - self.started_at_s) * 1000,
            hops=(*answer.hops, self._own_hop(answer)),
            attempts=self.attempts,
            trace_id=self.trace_id,
            sent_bytes=answer.sent_bytes,
            received_bytes=answer.received_bytes,
        )
        return self._finish(recognition)

    def failed(self, attempt: int, error: NearsightError, now_s: float) -> Ask | Finish | None:
        """A tier failed; the next one is asked unless no tier could do better."""
        question = self._ended(attempt, error.code, now_s)
        if question is None:
            return None
        self._blame(question, error, now_s)
        self._errors.append(error)
        if isinstance(error, InvalidArgument):
            return self._finish(error)
        return self._ask_next(now_s)

    def end(self, error: NearsightError) -> Finish | None:
        """End without an answer: a bad image, cancelled, closed."""
        if self.phase is Phase.DONE:
            return None
        question = self._question
        if question is not None:
            self._breakers[question.tier].abandoned(question.permit)
        return self._finish(error)

    def expired(self, now_s: float) -> Finish | None:
        """The deadline passed. The tier being asked is blamed if it had a fair time."""
        if self.phase is Phase.DONE:
            return None
        waiting_for = "the image" if self.phase is Phase.PREPARING else "an answer"
        question = self._question
        if question is not None:
            error = DeadlineExceeded(f"no answer from the {question.tier} in time")
            self._ended(len(self._attempts), error.code, now_s)
            self._blame(question, error, now_s)
            self._errors.append(error)
        waited_s = now_s - self.started_at_s
        message = f"no outcome within {waited_s:.2f} s, waiting for {waiting_for}{self._history()}"
        return self._finish(DeadlineExceeded(message, advice="allow more time or " + NO_TIER_ADVICE))

    def _ask_next(self, now_s: float) -> Ask | Finish:
        remaining_s = self.deadline_s - now_s
        if not self._left or remaining_s < SMALLEST_TRY_S:
            return self._finish(self._no_tier_left(remaining_s))
        healthy = [tier for tier in self._left if self._breakers[tier].healthy(now_s)]
        tier = healthy[0] if healthy else self._left[0]
        self._left.remove(tier)
        permit = self._breakers[tier].acquire(now_s)
        timeout_s = remaining_s
        if len(healthy) > 1:
            timeout_s *= self._settings.tier_share
            if permit.probe:
                timeout_s = min(timeout_s, self._settings.breaker.probe_timeout_s)
        self._question = _Question(tier, permit, now_s, timeout_s)
        return Ask(tier, timeout_s, len(self._attempts))

    def _ended(self, attempt: int, outcome: StatusCode, now_s: float) -> _Question | None:
        """Close the question that ``attempt`` is about; None if it is not the one being asked."""
        question = self._question
        if self.phase is not Phase.ASKING or question is None or attempt != len(self._attempts):
            return None
        self._question = None
        self._attempts.append(Attempt(question.tier, outcome, (now_s - question.asked_at_s) * 1000))
        return question

    def _blame(self, question: _Question, error: NearsightError, now_s: float) -> None:
        breaker = self._breakers[question.tier]
        limits = self._settings.breaker
        had_little_time = question.timeout_s < min(limits.fair_timeout_s, limits.probe_timeout_s)
        if isinstance(error, InvalidArgument):
            breaker.succeeded()  # it judged our request: it is alive
        elif isinstance(error, DeadlineExceeded) and had_little_time:
            breaker.abandoned(question.permit)
        else:
            breaker.failed(question.permit, now_s, at_once=isinstance(error, Unauthenticated))

    def _no_tier_left(self, remaining_s: float) -> NearsightError:
        """One error for all failures: what a person must repair first, then time, then the common kind."""
        for error in self._errors:
            if isinstance(error, CallerError):
                return type(error)(f"no tier answered{self._history()}", advice=error.advice)
        if remaining_s < SMALLEST_TRY_S:
            message = f"the time was used up{self._history()}"
            return DeadlineExceeded(message, advice="allow more time or " + NO_TIER_ADVICE)
        kinds = {type(error) for error in self._errors}
        kind = kinds.pop() if len(kinds) == 1 else Unavailable
        advice = self._errors[-1].advice if self._errors else ""
        return kind(f"no tier answered{self._history()}", advice=advice or NO_TIER_ADVICE)

    def _history(self) -> str:
        told = (
            f"{attempt.tier} after {attempt.elapsed_ms / 1000:.2f} s: {error.message}"
            for attempt, error in zip(self._attempts, self._errors, strict=True)
        )
        text = "; ".join(told)
        return f" ({text})" if text else ""

    def _own_hop(self, answer: TierAnswer) -> Hop:
        return Hop(
            tier="device",
            queue_ms=(self._prepare_started_s - self.started_at_s) * 1000,
            compute_ms=(self._prepared_s - self._prepare_started_s) * 1000,
            next_tier_ms=sum(attempt.elapsed_ms for attempt in self._attempts),
            received_bytes=answer.received_bytes,
            sent_bytes=answer.sent_bytes,
        )

    def _finish(self, outcome: Recognition | NearsightError) -> Finish:
        self.phase = Phase.DONE
        self._question = None
        return Finish(outcome)
