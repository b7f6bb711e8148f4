"""Chooses the tier to ask next, the form to send and the time limit; learns from the answers.

Order: healthy tiers in their configured order, then those that cool down. While another healthy tier is left,
a tier may use `AskRules.share` of the remaining time; the last one gets all of it. A tier that cools down is
still asked if no other is left: an edge without its cloud can answer from its cache, and after a failure of
all tiers the first request after the repair succeeds.

A circuit breaker decides which tiers are healthy. A tier that keeps failing cools down, is probed, and
becomes healthy again by itself. Requests that began before a change of state must not affect the state after
it: fifty requests that time out together are one outage, and a request lost when the edge stopped is no
failure of the restarted edge. So each permit has the generation in which it was issued, and failures of older
generations are ignored.

Tier and form are chosen together, because the expected time of a form depends on the link to the tier and on
the tier's computing time.
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
from nearsight.common.request.forms import FEATURES, OffloadChoice, Payload
from nearsight.common.rpc.envelope import Hop
from nearsight.common.settings import SettingsGroup

BYTES_PER_FEATURE = 38
"""Size of a feature on the wire: position, descriptor and strength."""
_NEWEST_WEIGHT = 0.1


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BreakerSettings(SettingsGroup):
    """Settings of the circuit breakers: when a failing tier is asked last."""

    failures: int = Field(default=3, ge=1)
    """Consecutive failures after which a tier cools down."""
    cooldown_s: Seconds = 1.0
    """First cool-down in seconds; each failed probe doubles it."""
    longest_cooldown_s: Seconds = 30.0
    """Longest cool-down in seconds."""
    probe_timeout_s: Seconds = 1.0
    """Maximum delay of a request in seconds by a probe, if another tier can answer the request."""
    fair_timeout_s: Seconds = 0.2
    """A timeout counts as a failure only if the tier had at least this time to answer, in seconds."""

    @model_validator(mode="after")
    def _longest_is_not_shorter(self) -> BreakerSettings:
        if self.longest_cooldown_s < self.cooldown_s:
            raise ValueError("longest_cooldown_s must not be below cooldown_s")
        return self


class BreakerState(IntEnum):
    """State of a circuit breaker; the number is the value of the metric."""

    CLOSED = 0
    PROBING = 1
    COOLING = 2


@dataclass(frozen=True, slots=True)
class Permit:
    """Issued to each request that asks the tier; returned with the outcome of the request."""

    generation: int
    probe: bool


class CircuitBreaker:
    """Decides whether a tier should be asked now. Pure: times are passed in, and there are no side effects.

    Parameters
    ----------
    settings : BreakerSettings
        Number of failures and duration of the cool-downs.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self.state = BreakerState.CLOSED
        """State after the last event; after a cool-down it stays COOLING until the next probe."""
        self._failures = 0
        self._generation = 0
        self._cooldown_s = settings.cooldown_s
        self._retry_at_s = 0.0

    def healthy(self, now_s: float) -> bool:
        """Whether the tier should be asked in its normal order: closed, or due for a probe."""
        if self.state is BreakerState.COOLING:
            return now_s >= self._retry_at_s
        return self.state is BreakerState.CLOSED

    def acquire(self, now_s: float) -> Permit:
        """Issue a permit to ask the tier. Never refused, because no other tier may be left."""
        if self.state is BreakerState.COOLING and now_s >= self._retry_at_s:
            self.state = BreakerState.PROBING
            self._generation += 1
            return Permit(self._generation, probe=True)
        return Permit(self._generation, probe=False)

    def succeeded(self) -> None:
        """The tier answered a request of any generation, so it is alive."""
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
            The permit from `acquire`.
        now_s : float
            Time of the failure.
        at_once : bool
            Whether a single failure suffices, because a retry cannot help (such as a refused key).
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
        """The request ended without a result for the tier; the next request repeats a probe."""
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
    """Rules for asking next tiers."""

    share: float = 1.0
    """Share of the remaining time for a tier while another healthy one is left."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    """Settings of the circuit breakers."""
    unreachable_advice: str = ""
    """Advice if no tier is reachable; if empty, the advice of the last error is used."""
    max_s: float = math.inf
    """Maximum time for a tier while another healthy one is left [s]."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The tier to ask, and how."""

    tier: str
    form: str
    """Name of the tier; form of the query, "image" or "features"."""
    permit: Permit
    """Permit of the tier's circuit breaker."""
    share: float = 1.0
    """Share of the remaining time."""
    max_s: float = math.inf
    """Maximum timeout [s]."""


class NextTiers:
    """The next tiers, with their health and links; shared by all requests of one tier. Thread-safe.

    Parameters
    ----------
    names : iterable of str
        Names of the tiers, in the order in which they are asked.
    rules : AskRules
        Time shares and circuit breakers.
    computing_ms : mapping of str to float
        Assumed computing time of a tier by form [ms], until it reports its own.
    query_features : int
        Number of features of a query, for the initial estimate of their size.
    """

    def __init__(
        self,
        names: Iterable[str],
        rules: AskRules,
        computing_ms: Mapping[str, float],
        query_features: int,
    ) -> None:
        self.names = tuple(names)
        """Names of the tiers, in the order in which they are asked."""
        self.rules = rules
        self._breakers = {name: CircuitBreaker(rules.breaker) for name in self.names}
        self._forms = {name: OffloadChoice(computing_ms) for name in self._breakers}
        self.features_bytes = query_features * BYTES_PER_FEATURE
        """Expected size of features that are not extracted yet: mean of those sent recently [bytes]."""
        self._mean_features_bytes = float(self.features_bytes)
        self._lock = threading.Lock()

    def states(self) -> dict[str, BreakerState]:
        """State of each tier's circuit breaker."""
        return {name: breaker.state for name, breaker in self._breakers.items()}

    def why(self) -> dict[str, str]:
        """The last choice between forms by tier, for display."""
        with self._lock:
            return {name: why for name, forms in self._forms.items() if (why := forms.why)}

    def choose(
        self, left: Sequence[str], payloads: Sequence[Payload], now_s: float, *, standby: bool = False
    ) -> Choice | None:
        """Choose one of the remaining tiers, and one of the forms that are possible for the photo.

        ``standby``: whether a standby can answer instead and needs a share of the time. If so, tiers that
        cool down are not asked, and the result is None if no other is left.
        """
        with self._lock:
            healthy = [name for name in left if self._breakers[name].healthy(now_s)]
            if standby and not healthy:
                return None
            tier = healthy[0] if healthy else left[0]
            permit = self._breakers[tier].acquire(now_s)
            form = self._forms[tier].choose(payloads) if len(payloads) > 1 else payloads[0].form
        if len(healthy) + standby < 2:
            return Choice(tier, form, permit)
        max_s = self.rules.breaker.probe_timeout_s if permit.probe else self.rules.max_s
        return Choice(tier, form, permit, self.rules.share, max_s)

    def overhead(self, tier: str, image_bytes: int, extraction_ms: float | None) -> tuple[float, float]:
        """Additional time of a photo compared with extracted features; see `OffloadChoice.overhead`."""
        with self._lock:
            return self._forms[tier].overhead(image_bytes, self.features_bytes, extraction_ms)

    def observe(
        self, tier: str, form: str, sent_bytes: int, round_trip_ms: float, hops: Sequence[Hop]
    ) -> None:
        """A tier answered a message; the last hop has the times that it reports.

        A faulty tier may report any time. No estimate exceeds the measured round trips, so that it recovers.
        """
        if not hops:
            return
        own = hops[-1]
        transfer_ms = round_trip_ms - own.queue_ms - own.compute_ms - own.next_tier_ms
        with self._lock:
            self._forms[tier].observe(form, sent_bytes, transfer_ms, min(own.compute_ms, round_trip_ms))
            if form == FEATURES:
                self._mean_features_bytes += _NEWEST_WEIGHT * (sent_bytes - self._mean_features_bytes)
                self.features_bytes = round(self._mean_features_bytes)

    def succeeded(self, choice: Choice, lesson: Lesson | None) -> None:
        """The tier answered. ``lesson`` is given for photos that can be sent in both forms."""
        with self._lock:
            self._breakers[choice.tier].succeeded()
            if lesson is not None:
                behind_ms = min(lesson.hop.next_tier_ms, lesson.waited_ms)
                self._forms[choice.tier].observe_outcome(unknown=lesson.unknown, behind_ms=behind_ms)

    def note_alive(self, tier: str) -> None:
        """A tier answered a call other than a query, so it is alive."""
        with self._lock:
            self._breakers[tier].succeeded()

    def abandoned(self, choice: Choice) -> None:
        """The request no longer needs the tier's answer."""
        with self._lock:
            self._breakers[choice.tier].abandoned(choice.permit)

    def failed(self, choice: Choice, error: NearsightError, timeout_s: float, now_s: float) -> None:
        """The tier failed to answer within ``timeout_s``, or reported an error."""
        breaker, limits = self._breakers[choice.tier], self.rules.breaker
        had_little_time = timeout_s < min(limits.fair_timeout_s, limits.probe_timeout_s)
        passed_on = isinstance(error, Overloaded) and error.tier not in ("", choice.tier)
        with self._lock:
            if isinstance(error, InvalidArgument) or passed_on:
                breaker.succeeded()  # it refused this request, or passed on a refusal, so it is alive
            elif isinstance(error, DeadlineExceeded) and had_little_time:
                breaker.abandoned(choice.permit)
            else:
                breaker.failed(choice.permit, now_s, at_once=isinstance(error, Unauthenticated))
