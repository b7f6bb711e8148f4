"""The tiers that may be asked next: which one, in which form, for how long. Learns from their answers.

Who is asked: healthy tiers in their order, then those that cool down. While another healthy tier is left, a
tier may use `AskRules.share` of the remaining time; the last one gets all of it. A tier that cools
down is asked last rather than never: an edge without its cloud still knows what it has cached, and where all
tiers were down the first request after a repair succeeds.

A circuit breaker decides who is healthy: a tier that keeps failing cools down, is probed, and comes back by
itself. Requests that began before a change of state must not decide about the state after it: fifty requests
that time out together are one outage, and a request lost with the old edge says nothing about the restarted
one. Each permit therefore carries the generation in which it was given, and failures of an older one are
ignored.

Tier and form are chosen together: the form that is expected to be answered sooner depends on the link to that
tier and on what it computes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

from pydantic import Field, model_validator

from nearsight.common.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NearsightError,
    Overloaded,
    Unauthenticated,
)
from nearsight.common.request.answer import Lesson
from nearsight.common.request.forms import FEATURES, LinkEstimate, OffloadChoice, OffloadDecision, Payload
from nearsight.common.rpc.envelope import Hop
from nearsight.common.settings import SettingsGroup

BYTES_PER_FEATURE = 38
"""On the network: position, descriptor and strength."""
_NEWEST_WEIGHT = 0.1


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BreakerSettings(SettingsGroup):
    """When a tier that keeps failing is asked last instead of first."""

    failures: int = Field(default=3, ge=1)
    """Failures in a row after which a tier cools down."""
    cooldown_s: Seconds = 1.0
    """First cool-down in seconds; each probe that fails doubles it."""
    longest_cooldown_s: Seconds = 30.0
    """Longest cool-down in seconds."""
    probe_timeout_s: Seconds = 1.0
    """Longest time in seconds that a probe may delay a request which another tier could answer."""
    fair_timeout_s: Seconds = 0.2
    """A tier that had fewer seconds than this to answer is not blamed for missing them."""

    @model_validator(mode="after")
    def _longest_is_not_shorter(self) -> BreakerSettings:
        if self.longest_cooldown_s < self.cooldown_s:
            raise ValueError("longest_cooldown_s must not be below cooldown_s")
        return self


class BreakerState(IntEnum):
    """State of a breaker; the number is what the metric shows."""

    CLOSED = 0
    PROBING = 1
    COOLING = 2


@dataclass(frozen=True, slots=True)
class Permit:
    """Given to each request that asks the tier; handed back with how it went."""

    generation: int
    probe: bool


class CircuitBreaker:
    """Decides whether a tier should be asked now. Pure: the time comes in, nothing goes out.

    Parameters
    ----------
    settings : BreakerSettings
        Number of failures and length of the cool-downs.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self.state = BreakerState.CLOSED
        """State after the last event; a cool-down that is over shows as cooling until it is probed."""
        self._failures = 0
        self._generation = 0
        self._cooldown_s = settings.cooldown_s
        self._retry_at_s = 0.0

    def healthy(self, now_s: float) -> bool:
        """Whether the tier should be asked in its turn: closed, or due for a probe."""
        if self.state is BreakerState.COOLING:
            return now_s >= self._retry_at_s
        return self.state is BreakerState.CLOSED

    def acquire(self, now_s: float) -> Permit:
        """Permission to ask the tier. Never refused: a request may have nobody else left to ask."""
        if self.state is BreakerState.COOLING and now_s >= self._retry_at_s:
            self.state = BreakerState.PROBING
            self._generation += 1
            return Permit(self._generation, probe=True)
        return Permit(self._generation, probe=False)

    def succeeded(self) -> None:
        """The tier answered: whoever asked, and whenever, it is alive."""
        if self.state is not BreakerState.CLOSED:
            self._generation += 1
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._cooldown_s = self._settings.cooldown_s

    def failed(self, permit: Permit, now_s: float, *, at_once: bool = False) -> None:
        """The tier failed this request.

        Parameters
        ----------
        permit : Permit
            What `acquire` gave.
        now_s : float
            Time of the failure.
        at_once : bool
            Whether one such failure is enough, because a repetition cannot help (a refused key).
        """
        if permit.generation != self._generation:
            return
        if permit.probe:
            self._cool_down(now_s, min(2 * self._cooldown_s, self._settings.longest_cooldown_s))
        elif self.state is BreakerState.CLOSED:
            self._failures += 1
            if at_once or self._failures >= self._settings.failures:
                self._cool_down(now_s, self._settings.cooldown_s)

    def abandoned(self, permit: Permit) -> None:
        """The request ended without a verdict on the tier; a probe is left for the next request."""
        if permit.probe and permit.generation == self._generation and self.state is BreakerState.PROBING:
            self.state = BreakerState.COOLING

    def _cool_down(self, now_s: float, cooldown_s: float) -> None:
        self.state = BreakerState.COOLING
        self._generation += 1
        self._failures = 0
        self._cooldown_s = cooldown_s
        self._retry_at_s = now_s + cooldown_s


@dataclass(frozen=True, slots=True)
class AskRules:
    """How a tier asks others."""

    share: float = 1.0
    """Of the time left that a tier may use while another healthy one could still be asked."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    """When a tier that keeps failing is asked last."""
    nobody_advice: str = ""
    """What to do if none of them is there at all. Empty: what the last one's error advises."""
    most_s: float = math.inf
    """Longest time in seconds for a tier while another healthy one could still be asked."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to ask, and how."""

    tier: str
    form: str
    """Name of the tier; "image" or "features"."""
    permit: Permit
    """Of the tier's circuit breaker."""
    share: float = 1.0
    """Of the time that is left."""
    most_s: float = math.inf
    """Longest time to wait."""


class NextTiers:
    """Shared by all requests of one tier. Thread-safe.

    Parameters
    ----------
    names : iterable of str
        In the order in which they should be asked.
    rules : AskRules
        Shares and circuit breakers.
    computing_ms : mapping of str to float
        What a tier is assumed to compute on each form, until it says so itself.
    query_features : int
        Features of a query, for the size that is assumed at first.
    """

    def __init__(
        self,
        names: Iterable[str],
        rules: AskRules,
        computing_ms: Mapping[str, float],
        query_features: int,
    ) -> None:
        self.names = tuple(names)
        """In the order in which they should be asked."""
        self._rules = rules
        self.nobody_advice = rules.nobody_advice
        """What to do if none of them is there."""
        self._breakers = {name: CircuitBreaker(rules.breaker) for name in self.names}
        self._forms = {name: OffloadChoice(LinkEstimate(), computing_ms) for name in self._breakers}
        self._last: dict[str, OffloadDecision] = {}
        self.features_bytes = query_features * BYTES_PER_FEATURE
        """Size of features that are not extracted yet: of those that were sent lately."""
        self._mean_features_bytes = float(self.features_bytes)
        self._lock = threading.Lock()

    def states(self) -> dict[str, BreakerState]:
        """The state of each tier's circuit breaker."""
        return {name: breaker.state for name, breaker in self._breakers.items()}

    def why(self) -> dict[str, str]:
        """The last choice between forms for each tier, for a person."""
        with self._lock:
            return {name: decision.why for name, decision in self._last.items()}

    def choose(
        self, left: Sequence[str], payloads: Sequence[Payload], now_s: float, *, standby: bool = False
    ) -> Choice | None:
        """Choose one of the tiers that are left, and one of the forms that the photo can be sent in.

        ``standby``: somebody answers if they do not, and needs a share of the time. Then a tier that cools
        down is not asked, and None says that there is no other.
        """
        with self._lock:
            healthy = [name for name in left if self._breakers[name].healthy(now_s)]
            if standby and not healthy:
                return None
            tier = healthy[0] if healthy else left[0]
            permit = self._breakers[tier].acquire(now_s)
            form = payloads[0].form
            if len(payloads) > 1:
                decision = self._last[tier] = self._forms[tier].choose(payloads)
                form = decision.form
        if len(healthy) + standby < 2:
            return Choice(tier, form, permit)
        most_s = self._rules.breaker.probe_timeout_s if permit.probe else self._rules.most_s
        return Choice(tier, form, permit, self._rules.share, most_s)

    def overhead(self, tier: str, image_bytes: int, extraction_ms: float | None) -> tuple[float, float]:
        """How much longer a photo takes than if its features were here: `OffloadChoice.overhead`."""
        with self._lock:
            return self._forms[tier].overhead(image_bytes, self.features_bytes, extraction_ms)

    def observe(
        self, tier: str, form: str, sent_bytes: int, round_trip_ms: float, hops: Sequence[Hop]
    ) -> None:
        """A tier answered a message; the last hop is what it says that it spent."""
        if not hops:
            return
        own = hops[-1]
        transfer_ms = round_trip_ms - own.queue_ms - own.compute_ms - own.next_tier_ms
        with self._lock:
            self._forms[tier].observe(form, sent_bytes, transfer_ms, own.compute_ms)
            if form == FEATURES:
                self._mean_features_bytes += _NEWEST_WEIGHT * (sent_bytes - self._mean_features_bytes)
                self.features_bytes = round(self._mean_features_bytes)

    def succeeded(self, choice: Choice, lesson: Lesson | None) -> None:
        """The tier answered; with what that teaches on photos that can be sent in both forms."""
        with self._lock:
            self._breakers[choice.tier].succeeded()
            if lesson is not None:
                behind_ms = lesson.hop.next_tier_ms
                self._forms[choice.tier].observe_outcome(unknown=lesson.unknown, behind_ms=behind_ms)

    def came_back(self, tier: str) -> None:
        """A tier answered a call that was no question: it lives."""
        with self._lock:
            self._breakers[tier].succeeded()

    def abandoned(self, choice: Choice) -> None:
        """Nobody waits for the tier's answer any more."""
        with self._lock:
            self._breakers[choice.tier].abandoned(choice.permit)

    def failed(self, choice: Choice, error: NearsightError, timeout_s: float, now_s: float) -> None:
        """The tier failed, after it had ``timeout_s`` to answer."""
        breaker, limits = self._breakers[choice.tier], self._rules.breaker
        had_little_time = timeout_s < min(limits.fair_timeout_s, limits.probe_timeout_s)
        passed_on = isinstance(error, Overloaded) and error.tier not in ("", choice.tier)
        with self._lock:
            if isinstance(error, InvalidArgument) or passed_on:
                breaker.succeeded()  # it judged our request, or passed on a refusal: it is alive
            elif isinstance(error, DeadlineExceeded) and had_little_time:
                breaker.abandoned(choice.permit)
            else:
                breaker.failed(choice.permit, now_s, at_once=isinstance(error, Unauthenticated))
