"""The tiers that may be asked next: which one, in which form, for how long. Learns from their answers.

Who is asked: healthy tiers in their order, then those that cool down. While another healthy tier is left, a
tier may use `AskRules.share` of the remaining time; the last one gets all of it. A tier that cools
down is asked last rather than never: an edge without its cloud still knows what it has cached, and where all
tiers were down the first request after a repair succeeds.

Tier and form are chosen together: the form that is expected to be answered sooner depends on the link to that
tier and on what it computes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nearsight.common.errors import DeadlineExceeded, InvalidArgument, NearsightError, Unauthenticated
from nearsight.common.request.breaker import BreakerSettings, BreakerState, CircuitBreaker, Permit
from nearsight.common.request.forms import (
    FEATURES,
    LinkEstimate,
    OffloadChoice,
    OffloadDecision,
    Payload,
)
from nearsight.common.rpc.envelope import Hop

BYTES_PER_FEATURE = 38
"""On the network: position, descriptor and strength."""
_NEWEST_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class AskRules:
    """How a tier asks others.

    Attributes
    ----------
    share : float
        Of the time left that a tier may use while another healthy one could still be asked.
    breaker : BreakerSettings
        When a tier that keeps failing is asked last.
    """

    share: float = 1.0
    breaker: BreakerSettings = field(default_factory=BreakerSettings)


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to ask, and how.

    Attributes
    ----------
    tier, form : str
        Name of the tier; "image" or "features".
    permit : Permit
        Of the tier's circuit breaker.
    share : float
        Of the time that is left.
    most_s : float
        Longest time to wait.
    """

    tier: str
    form: str
    permit: Permit
    share: float = 1.0
    most_s: float = math.inf


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

    Attributes
    ----------
    names : tuple of str
        In the order in which they should be asked.
    features_bytes : int
        Size of features that are not extracted yet: of those that were sent lately.
    """

    def __init__(
        self,
        names: Iterable[str],
        rules: AskRules,
        computing_ms: Mapping[str, float],
        query_features: int,
    ) -> None:
        self.names = tuple(names)
        self._rules = rules
        self._breakers = {name: CircuitBreaker(rules.breaker) for name in self.names}
        self._forms = {name: OffloadChoice(LinkEstimate(), computing_ms) for name in self._breakers}
        self._last: dict[str, OffloadDecision] = {}
        self.features_bytes = query_features * BYTES_PER_FEATURE
        self._mean_features_bytes = float(self.features_bytes)
        self._lock = threading.Lock()

    def states(self) -> dict[str, BreakerState]:
        """The state of each tier's circuit breaker."""
        return {name: breaker.state for name, breaker in self._breakers.items()}

    def why(self) -> dict[str, str]:
        """The last choice between forms for each tier, for a person."""
        with self._lock:
            return {name: decision.why for name, decision in self._last.items()}

    def choose(self, left: Sequence[str], payloads: Sequence[Payload], now_s: float) -> Choice:
        """Choose one of the tiers that are left, and one of the forms that the photo can be sent in."""
        with self._lock:
            healthy = [name for name in left if self._breakers[name].healthy(now_s)]
            tier = healthy[0] if healthy else left[0]
            permit = self._breakers[tier].acquire(now_s)
            form = payloads[0].form
            if len(payloads) > 1:
                decision = self._last[tier] = self._forms[tier].choose(payloads)
                form = decision.form
        if len(healthy) < 2:
            return Choice(tier, form, permit)
        most_s = self._rules.breaker.probe_timeout_s if permit.probe else math.inf
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

    def observe_outcome(self, tier: str, *, unknown: bool, behind_ms: float) -> None:
        """What became of a photo that there was a choice for: see `OffloadChoice.observe_outcome`."""
        with self._lock:
            self._forms[tier].observe_outcome(unknown=unknown, behind_ms=behind_ms)

    def succeeded(self, choice: Choice) -> None:
        """The tier answered."""
        with self._lock:
            self._breakers[choice.tier].succeeded()

    def abandoned(self, choice: Choice) -> None:
        """Nobody waits for the tier's answer any more."""
        with self._lock:
            self._breakers[choice.tier].abandoned(choice.permit)

    def failed(self, choice: Choice, error: NearsightError, timeout_s: float, now_s: float) -> None:
        """The tier failed, after it had ``timeout_s`` to answer."""
        breaker, limits = self._breakers[choice.tier], self._rules.breaker
        had_little_time = timeout_s < min(limits.fair_timeout_s, limits.probe_timeout_s)
        with self._lock:
            if isinstance(error, InvalidArgument):
                breaker.succeeded()  # it judged our request: it is alive
            elif isinstance(error, DeadlineExceeded) and had_little_time:
                breaker.abandoned(choice.permit)
            else:
                breaker.failed(choice.permit, now_s, at_once=isinstance(error, Unauthenticated))
