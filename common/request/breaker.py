"""A circuit breaker: a tier that keeps failing cools down, is probed, and comes back by itself.

Requests that began before a change of state must not decide about the state after it: fifty requests that
time out together are one outage, and a request lost with the old edge says nothing about the restarted one.
Each permit therefore carries the generation in which it was given, and failures of an older one are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BreakerSettings(BaseModel):
    """When a tier that keeps failing is asked last instead of first."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

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
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._generation = 0
        self._cooldown_s = settings.cooldown_s
        self._retry_at_s = 0.0

    @property
    def state(self) -> BreakerState:
        """State after the last event; a cool-down that is over shows as cooling until it is probed."""
        return self._state

    def healthy(self, now_s: float) -> bool:
        """Whether the tier should be asked in its turn: closed, or due for a probe."""
        if self._state is BreakerState.COOLING:
            return now_s >= self._retry_at_s
        return self._state is BreakerState.CLOSED

    def acquire(self, now_s: float) -> Permit:
        """Permission to ask the tier. Never refused: a request may have nobody else left to ask."""
        if self._state is BreakerState.COOLING and now_s >= self._retry_at_s:
            self._state = BreakerState.PROBING
            self._generation += 1
            return Permit(self._generation, probe=True)
        return Permit(self._generation, probe=False)

    def succeeded(self) -> None:
        """The tier answered: whoever asked, and whenever, it is alive."""
        if self._state is not BreakerState.CLOSED:
            self._generation += 1
        self._state = BreakerState.CLOSED
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
        elif self._state is BreakerState.CLOSED:
            self._failures += 1
            if at_once or self._failures >= self._settings.failures:
                self._cool_down(now_s, self._settings.cooldown_s)

    def abandoned(self, permit: Permit) -> None:
        """The request ended without a verdict on the tier; a probe is left for the next request."""
        if permit.probe and permit.generation == self._generation and self._state is BreakerState.PROBING:
            self._state = BreakerState.COOLING

    def _cool_down(self, now_s: float, cooldown_s: float) -> None:
        self._state = BreakerState.COOLING
        self._generation += 1
        self._failures = 0
        self._cooldown_s = cooldown_s
        self._retry_at_s = now_s + cooldown_s
