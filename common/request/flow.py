"""The flow of one request on one tier: events with times in, the next effect out.

::

    WAITING --a worker starts--> LOOKING --found----------------------------> DONE
                                    |  unknown to every stage
                                    v
       MAKING the form to send <----+----> ASKING --answer------------------> DONE
          ^                                |  |  ^
          |                                |  +--+ failure, and another tier is left
          +--------------------------------+ features unknown: the image follows
       bad image, cancelled, deadline, closed ... in any phase -------------> DONE

This module has no sockets, threads or clocks. Three drivers carry out the effects: the SDK (threads and
sockets), the edge daemon (the workers of its server), and the twin (virtual time). A driver serialises the
events of a request. Events after DONE have no effect, so every request has exactly one outcome for any order
of events.

The last tier (the cloud) takes a second look at an image that it does not recognise at once. It cannot do so
with features. So if features are unknown, the image follows. This second trip is part of the cost of features
(`forms.py`) and is implemented only here. If one look is enough, because further photos of the same scene
follow, the answer to the features is final.

All failures pass the request to the next tier, except INVALID_ARGUMENT, because the next tier would refuse
the same image. A wrong key or an unknown catalogue passes as well: keys and catalogues are configured per
tier, and a mistake in the configuration of the edge should not leave the user without an answer. The error is
logged. If no tier answers, the application receives this error, because only a person can correct it.

A tier may have a standby, a stage that looks if the next tier fails. With a standby, the next tier gets only
a part of the remaining time, and is not asked while it cools down. After an error of the caller (such as an
unknown catalogue) the standby does not look, because the tier did answer.

An overload error names the tier that refused. An edge passes on the error of its cloud; the device then does
not ask the cloud again, because that would double the load of an overloaded cloud.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Generic

from nearsight.common.errors import (
    CallerError,
    DeadlineExceeded,
    InvalidArgument,
    NearsightError,
    Overloaded,
    StatusCode,
    Unavailable,
)
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import NETWORK, Answer, Attempt, Lesson
from nearsight.common.request.effects import Ask, Effect, Finish, Look, Q, Stage, Standby, Work
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.common.request.next_tiers import Choice, NextTiers
from nearsight.common.rpc.envelope import Hop

NO_TIER_ADVICE = "check that the edge or the cloud runs at the configured address"
SMALLEST_TRY_S = 0.01
"""Minimum remaining time for asking a further tier [s]."""
LEAST_REPETITION_S = 0.1
"""Minimum remaining time for sending the image after unknown features [s]."""


class Phase(Enum):
    """Phase of a request."""

    WAITING = auto()
    LOOKING = auto()
    MAKING = auto()
    ASKING = auto()
    DONE = auto()


@dataclass(slots=True)
class _Question:
    """The current question to a next tier."""

    choice: Choice
    form: str
    chosen_s: float
    asked_s: float = 0.0
    sent_s: float = 0.0
    timeout_s: float = 0.0
    first: Answer | None = None
    first_ms: float = 0.0


class RequestFlow(Generic[Q]):
    """One request.

    Parameters
    ----------
    stages : sequence of Stage
        Stages in the order in which they look.
    tiers : NextTiers
        Tiers that can be asked; shared by all requests.
    tier : str
        Name of this tier, for answers of its stages.
    started_at_s, deadline_s : float
        Arrival of the request, and deadline of its outcome, on the driver's clock.
    standby : Standby, optional
        Looks if no tier answers.
    only_here : bool
        No other tier is asked: the request fails if no stage recognises the photo.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Q]],
        tiers: NextTiers,
        tier: str,
        started_at_s: float,
        deadline_s: float,
        *,
        standby: Standby[Q] | None = None,
        only_here: bool = False,
    ) -> None:
        self._query: Q
        self._stages = tuple(stages)
        self._to_look = list(stages)
        self._standby, self._standby_left = standby, standby is not None
        self._looking: Stage[Q] | None = None
        self._work: Work | None = None
        self._tiers = tiers
        self._tier = tier
        self._remaining_tiers = [] if only_here else list(tiers.names)
        self._question: _Question | None = None
        self.attempts: list[Attempt] = []
        """Completed questions to tiers, in order."""
        self._errors: list[NearsightError] = []
        self.last_error: NearsightError | None = None
        """Error of the last tier that failed."""
        self._begun_s = self._working_since_s = started_at_s
        self._computed_ms = self._asked_ms = 0.0
        self.started_at_s = started_at_s
        self.deadline_s = deadline_s
        self.phase = Phase.WAITING
        """Current phase."""

    def own_hop(self, answer: Answer) -> Hop:
        """Time and bytes spent by this tier."""
        return Hop(
            tier=self._tier,
            queue_ms=(self._begun_s - self.started_at_s) * 1000,
            compute_ms=self._computed_ms,
            next_tier_ms=self._asked_ms,
            received_bytes=answer.received_bytes,
            sent_bytes=answer.sent_bytes,
        )

    # Events

    def begin(self, query: Q, begun_s: float, now_s: float) -> Effect[Q] | None:
        """A worker started the request at ``begun_s``; the time before was spent in the queue."""
        if self.phase is not Phase.WAITING:
            return None
        self._query = query
        self._begun_s = self._working_since_s = begun_s
        self.phase = Phase.LOOKING
        return self._look_next(now_s)

    def made(self, now_s: float) -> Effect[Q] | None:
        """The features were extracted, or the image was encoded."""
        work, self._work = self._work, None
        if work is None or self.phase is Phase.DONE:
            return None
        if self._looking is not None:
            return Look(self._looking)
        return self._ask(self._question, now_s) if self._question is not None else None

    def not_made(self, error: NearsightError, now_s: float) -> Effect[Q] | None:
        """Reading the photo, extracting its features or encoding the image failed."""
        question = self._question
        if question is not None and question.first is not None:
            return self._answered(question, question.first, now_s, complete=False)
        return self._end(error)

    def looked(self, stage: Stage[Q], found: RecognizedObject | None, now_s: float) -> Effect[Q] | None:
        """A stage looked at the query; ``found`` is None if it does not know the object."""
        if self.phase is not Phase.LOOKING or stage is not self._looking:
            return None
        self._looking = None
        # The next tier has the same network. Without a next tier, the last stage holds the whole catalogue.
        final = stage.grain == NETWORK or not (self._to_look or self._tiers.names)
        if stage is self._standby and self._standby is not None:
            final = self._standby.complete
        if found is None and not final:
            return self._look_next(now_s)
        self._computed_ms += (now_s - self._working_since_s) * 1000
        learners = tuple(one for one in self._stages if one is not stage)
        return self._finish(Answer(found, self._tier, stage.grain), learners=learners)

    def replied(self, attempt: int, answer: Answer, now_s: float) -> Effect[Q] | None:
        """A tier answered with an object or with "unknown"."""
        question = self._question
        if self.phase is not Phase.ASKING or question is None or attempt != len(self.attempts):
            return None
        choice, round_trip_ms = question.choice, (now_s - question.sent_s) * 1e3
        self._tiers.observe(choice.tier, question.form, answer.sent_bytes, round_trip_ms, answer.hops)
        if question.first is None:
            question.first_ms = (now_s - question.chosen_s) * 1e3
            left_s = question.asked_s + question.timeout_s - now_s
            unknown = question.form == FEATURES and answer.found is None and self._query.has_image
            stands = self._query.one_look and answer.grain != NETWORK  # networks do not use features
            if unknown and not stands and left_s >= LEAST_REPETITION_S:
                question.first, question.form = answer, IMAGE
                return self._make_or_ask(question, now_s)
        else:  # with the bytes of both messages
            sent_bytes = question.first.sent_bytes + answer.sent_bytes
            received_bytes = question.first.received_bytes + answer.received_bytes
            answer = replace(answer, sent_bytes=sent_bytes, received_bytes=received_bytes)
        return self._answered(question, answer, now_s, complete=True)

    def failed(self, attempt: int, error: NearsightError, now_s: float) -> Effect[Q] | None:
        """A tier failed; ask the next one, unless that would refuse the request as well."""
        question = self._question
        if self.phase is not Phase.ASKING or question is None or attempt != len(self.attempts):
            return None
        if question.first is not None:  # the answer to the features is available
            return self._answered(question, question.first, now_s, complete=False)
        self._record_failure(question, error, now_s)
        if isinstance(error, InvalidArgument):
            return self._finish(error)
        if isinstance(error, Overloaded) and error.tier in self._remaining_tiers:
            self._remaining_tiers.remove(error.tier)  # it has already refused the question
        return self._ask_next(now_s)

    def end(self, error: NearsightError) -> Effect[Q] | None:
        """End the request without an answer, because it was cancelled or closed."""
        return self._end(error)

    def expired(self, now_s: float) -> Effect[Q] | None:
        """The deadline passed. The failure counts against the tier being asked if it had a fair time."""
        if self.phase is Phase.DONE:
            return None
        question = self._question
        if question is not None and question.first is not None:
            return self._answered(question, question.first, now_s, complete=False)
        waiting_for = "an answer" if self.phase is Phase.ASKING else "the image"
        if question is not None and self.phase is Phase.ASKING:
            self._record_failure(
                question, DeadlineExceeded(f"no answer from the {question.choice.tier} in time"), now_s
            )
        elif question is not None:
            self._tiers.abandoned(question.choice)
        passed_s = now_s - self.started_at_s
        message = f"no outcome within {passed_s:.2f} s, waiting for {waiting_for}{self._history()}"
        return self._finish(DeadlineExceeded(message, advice=self._advice_for_time()))

    # Decisions

    def _look_next(self, now_s: float) -> Effect[Q]:
        """Let the next eligible stage look, or ask a tier."""
        while self._to_look:
            stage = self._to_look.pop(0)
            wanted = stage.features_wanted(self._query)
            if wanted is not None:
                self._looking = stage
                self._work = self._query.missing_features(wanted)
                return self._work or Look(stage)
        return self._ask_next(now_s)

    def _ask_next(self, now_s: float) -> Effect[Q]:
        """Choose a tier and a form together, once per question."""
        standby = self._standby if self._standby_left else None
        choice = None
        if self._remaining_tiers and self.deadline_s - now_s >= SMALLEST_TRY_S:
            payloads = self._query.payloads(self._tiers.features_bytes)
            choice = self._tiers.choose(self._remaining_tiers, payloads, now_s, standby=standby is not None)
        if choice is not None:
            self._remaining_tiers.remove(choice.tier)
            self._question = _Question(choice, choice.form, now_s)
            return self._make_or_ask(self._question, now_s)
        if standby is not None:
            self._standby_left = False
            self.phase = Phase.LOOKING
            self._to_look.append(standby)
            return self._look_next(now_s)
        return self._finish(self._no_tier_left(now_s))

    def _make_or_ask(self, question: _Question, now_s: float) -> Effect[Q]:
        self.phase = Phase.MAKING
        self._work = self._query.missing(question.form)
        return self._work or self._ask(question, now_s)

    def _ask(self, question: _Question, now_s: float) -> Effect[Q]:
        again = question.first is not None
        if not again:
            self._computed_ms += (now_s - self._working_since_s) * 1000
            remaining_s = self.deadline_s - now_s
            if remaining_s < SMALLEST_TRY_S:
                self._tiers.abandoned(question.choice)
                return self._finish(self._no_tier_left(now_s))
            question.asked_s = now_s
            question.timeout_s = min(remaining_s * question.choice.share, question.choice.max_s)
        question.sent_s = now_s
        self.phase = Phase.ASKING
        left_s = question.asked_s + question.timeout_s - now_s
        tier, attempt = question.choice.tier, len(self.attempts)
        return Ask(tier, question.form, left_s, attempt, again)

    def _answered(self, question: _Question, answer: Answer, now_s: float, *, complete: bool) -> Finish[Q]:
        choice = question.choice
        waited_ms = (now_s - question.asked_s) * 1e3
        self.attempts.append(Attempt(choice.tier, StatusCode.OK, waited_ms))
        self._asked_ms += waited_ms
        lesson = Lesson(
            tier=choice.tier,
            unknown=question.first is not None or answer.found is None,
            round_trip_ms=(now_s - question.sent_s) * 1e3,
            first_ms=question.first_ms,
            waited_ms=waited_ms,
            complete=complete,
            hop=answer.hops[-1] if answer.hops else Hop(choice.tier),
        )
        counts = self._query.has_image and not self._query.asked_again
        self._tiers.succeeded(choice, lesson if counts else None)
        return self._finish(answer, lesson, self._stages)

    def _end(self, error: NearsightError) -> Finish[Q] | None:
        if self.phase is Phase.DONE:
            return None
        if self._question is not None:
            self._tiers.abandoned(self._question.choice)
        return self._finish(error)

    def _record_failure(self, question: _Question, error: NearsightError, now_s: float) -> None:
        elapsed_ms = (now_s - question.asked_s) * 1000
        if isinstance(error, Overloaded) and not error.tier:
            error.tier = question.choice.tier
        self.attempts.append(Attempt(question.choice.tier, error.code, elapsed_ms))
        self._asked_ms += elapsed_ms
        self._errors.append(error)
        self.last_error = error
        if isinstance(error, CallerError):
            self._standby_left = False  # the tier did answer
        self._tiers.failed(question.choice, error, question.timeout_s, now_s)
        self._question = None
        self._working_since_s = now_s

    def _no_tier_left(self, now_s: float) -> NearsightError:
        """One error for all failures: what a person must correct, else lack of time, else the common kind."""
        for error in self._errors:
            if isinstance(error, CallerError):
                return type(error)(f"no tier answered{self._history()}", advice=error.advice)
        if self.deadline_s - now_s < SMALLEST_TRY_S:
            message = f"the deadline passed{self._history()}"
            return DeadlineExceeded(message, advice=self._advice_for_time())
        kinds = {type(error) for error in self._errors}
        kind = kinds.pop() if len(kinds) == 1 else Unavailable
        advice = self.last_error.advice if self.last_error is not None else ""
        if all(isinstance(error, Unavailable) and not error.reached for error in self._errors):
            advice = self._tiers.rules.unreachable_advice or advice
        return kind(f"no tier answered{self._history()}", advice=advice or NO_TIER_ADVICE)

    def _advice_for_time(self) -> str:
        return "allow more time" + (f" or {NO_TIER_ADVICE}" if self._tiers.names else "")

    def _history(self) -> str:
        text = "; ".join(
            f"{attempt.tier} after {attempt.elapsed_ms / 1000:.2f} s: {error.message}"
            for attempt, error in zip(self.attempts, self._errors, strict=True)
        )
        return f" ({text})" if text else ""

    def _finish(
        self,
        outcome: Answer | NearsightError,
        lesson: Lesson | None = None,
        learners: tuple[Stage[Q], ...] = (),
    ) -> Finish[Q]:
        self.phase = Phase.DONE
        self._question = None
        return Finish(outcome, lesson, learners)
