"""A client's decisions about its unanswered calls and its connection: events in, actions out, no sockets.

Rules:

- A call is sent when there is a connection, in the order of calling. Without a connection it waits up to
  ``connect_grace_s`` from the loss of the connection (a restarting daemon is available again by then). After
  that, each further call makes one attempt to connect and fails if the attempt fails.
- The rate of attempts is limited: the mean time between two doubles from ``connect_interval_s`` to
  ``connect_interval_max_s`` until a call is answered. A call in between waits for the next attempt.
- When a connection is lost, calls that were sent on it fail with `Unavailable`, because the server may have
  executed them. Calls of idempotent methods are sent again instead, after a wait with jitter, as far as
  attempts, the retry budget and the deadline allow.
- A refused key fails all waiting calls at once, because a further attempt would fail too. The next call makes
  a new attempt, because the key may be allowed by then.
- An overloaded server states a time in which it will refuse further calls. Calls of that method by that
  client fail during this time without being sent: a photo is not transmitted only to be refused.
- A call always ends at its deadline.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded, Unauthenticated, Unavailable
from nearsight.common.rpc.settings import ChannelSettings

_PAUSE_S = 0.07
"""Delay after which a call that is not sent to a busy server fails; equal to the server's own delay."""
_LONGEST_BUSY_S = 5.0
_MOST_BUSY = 4096
"""Maximum number of stored pairs of method and client that the server refuses."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call without an answer yet; channels add the message to send."""

    request_id: int
    """Unique in the channel."""
    deadline_s: float
    """Time at which the call ends at the latest."""
    idempotent: bool
    """Whether it may be sent again."""
    attempts: int = 0
    not_before_s: float = -math.inf  # clocks may start at any value
    kind: Hashable = None
    """Method and client; a server refuses calls of the same kind together."""
    refusal: NearsightError | None = None
    """Reason why the call is not sent; None if it may be sent."""


C = TypeVar("C", bound=PendingCall)


@dataclass(frozen=True, slots=True)
class Send(Generic[C]):
    """Send the call on the connection."""

    call: C


@dataclass(frozen=True, slots=True)
class Fail(Generic[C]):
    """The call ends with an error."""

    call: C
    error: NearsightError


@dataclass(frozen=True, slots=True)
class Connect:
    """Try to connect; report the outcome with `connected` or `disconnected`."""


Action = Send[C] | Fail[C] | Connect


class PendingCalls(Generic[C]):
    """The unanswered calls of one channel.

    Parameters
    ----------
    endpoint : str
        For messages.
    settings : ChannelSettings
        Timeouts, attempts, retry budget.
    rng : random.Random
        Jitter.
    """

    def __init__(self, endpoint: str, settings: ChannelSettings, rng: random.Random) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._rng = rng
        # Each call adds a fraction of a token, each retry takes one: retries never double the load of an
        # overloaded server.
        self._retry_tokens = settings.retry_burst
        self.calls: dict[int, C] = {}
        """Calls that have not ended, by id."""
        self._unsent: dict[int, C] = {}
        self._deadlines: list[tuple[float, int]] = []
        self.up = False
        """Whether there is a connection."""
        self._connecting_until_s: float | None = None
        self._connect_at_s: float | None = None
        self._down_since_s: float | None = None
        self._failures = 0  # consecutive connections and attempts without an answer
        self._busy_until_s: dict[Hashable, float] = {}

    def submit(self, call: C, now_s: float) -> list[Action[C]]:
        """Add a new call."""
        if len(self.calls) >= self._settings.pending_limit:
            return [Fail(call, Overloaded(f"{len(self.calls)} calls to {self._endpoint} are unanswered"))]
        self._retry_tokens = min(self._settings.retry_burst, self._retry_tokens + self._settings.retry_ratio)
        self.calls[call.request_id] = call
        busy_until_s = self._busy_until_s.get(call.kind, now_s)
        if now_s < busy_until_s:
            # Delayed: a caller that repeats failed calls at once must not load this machine.
            call.deadline_s = min(call.deadline_s, now_s + _PAUSE_S)
            advice = f"try again in {busy_until_s - now_s:.1f} s"
            call.refusal = Overloaded(f"{self._endpoint} is too busy", advice=advice)
        # Deadlines of answered calls stay until they pass. This is cheaper than their removal, and the thread
        # that handles timeouts is not woken for each new call. They are removed when there are many.
        if len(self._deadlines) > 1024 + 4 * len(self.calls):
            self._deadlines = [(c.deadline_s, c.request_id) for c in self.calls.values()]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (call.deadline_s, call.request_id))
        if call.refusal is not None:
            return []
        if self.up:
            call.attempts += 1
            return [Send(call)]
        self._unsent[call.request_id] = call
        return self._connect_now(now_s)

    def connected(self, now_s: float) -> list[Action[C]]:
        """A connection is up; with keys, the server has proved its own."""
        self.up, self._connecting_until_s, self._connect_at_s, self._down_since_s = True, None, None, None
        return self._send_due(now_s)

    def disconnected(self, error: NearsightError, now_s: float) -> list[Action[C]]:
        """The connection ended, or an attempt to connect failed."""
        if self.up:
            return self._lost(error, now_s)
        if isinstance(error, Unauthenticated):
            return self._rejected(error, now_s)
        return self._refused(error, now_s)

    def not_sent(self, call: C, now_s: float) -> None:
        """The connection had no room for the call: send it later."""
        if call.request_id in self.calls:
            call.attempts -= 1
            call.not_before_s = now_s + 0.01
            self._unsent[call.request_id] = call

    def answered(self, request_id: int) -> C | None:
        """The call for an answer; None if the call has ended already."""
        self._failures = 0
        self._unsent.pop(request_id, None)
        return self.calls.pop(request_id, None)

    def server_busy(self, call: C, for_s: float, now_s: float) -> None:
        """The server refused a call, and will refuse others of its kind for ``for_s`` seconds."""
        if len(self._busy_until_s) >= _MOST_BUSY:
            self._busy_until_s.clear()
        self._busy_until_s[call.kind] = now_s + min(for_s, _LONGEST_BUSY_S)

    def tick(self, now_s: float) -> list[Action[C]]:
        """Handle everything that is due at this time."""
        actions: list[Action[C]] = []
        while self._deadlines and (self._deadlines[0][0] <= now_s or self._deadlines[0][1] not in self.calls):
            call = self.calls.get(heapq.heappop(self._deadlines)[1])
            if call is not None:
                actions.append(self._fail(call, self._too_late(call)))
        if self._connecting_until_s is not None and now_s >= self._connecting_until_s:
            error = Unavailable(
                f"{self._endpoint} did not accept a connection within {self._settings.connect_timeout_s:g} s"
            )
            actions += self._refused(error, now_s)
        if self._unsent and self.up:
            actions += self._send_due(now_s)
        elif self._unsent and self._connect_at_s is not None:
            actions += self._connect_now(now_s)
        return actions

    def close(self, error: NearsightError) -> list[Action[C]]:
        """End all calls and reset the state of the connection."""
        self.up, self._connecting_until_s, self._connect_at_s = False, None, None
        return [self._fail(call, error) for call in list(self.calls.values())]

    def next_due_s(self) -> float | None:
        """Time of the next necessary `tick`; may be too early, never too late."""
        dues = [self._deadlines[0][0]] if self._deadlines else []
        if self._connecting_until_s is not None:
            dues.append(self._connecting_until_s)
        if self._unsent and not self.up and self._connect_at_s is not None:
            dues.append(self._connect_at_s)
        if self._unsent and self.up:
            dues.append(min(call.not_before_s for call in self._unsent.values()))
        return min(dues, default=None)

    def _refused(self, error: NearsightError, now_s: float) -> list[Action[C]]:
        """An attempt to connect failed for a reason that may be temporary."""
        self.up, self._connecting_until_s = False, None
        if self._down_since_s is None:
            self._down_since_s = now_s
        self._put_off_connecting(now_s)
        if now_s - self._down_since_s < self._settings.connect_grace_s:
            return []
        return self._fail_unsent(error)

    def _rejected(self, error: NearsightError, now_s: float) -> list[Action[C]]:
        """An attempt to connect failed permanently: a wrong key."""
        self.up, self._connecting_until_s, self._connect_at_s = False, None, None
        self._down_since_s = self._down_since_s or now_s
        return self._fail_unsent(error)

    def _lost(self, error: NearsightError, now_s: float) -> list[Action[C]]:
        self.up, self._connecting_until_s, self._down_since_s = False, None, now_s
        if self._failures:  # reconnect without delay only if an answer arrived since the last failure
            self._put_off_connecting(now_s)
        self._failures = max(self._failures, 1)
        self._busy_until_s.clear()
        actions: list[Action[C]] = []
        for call in [call for call in self.calls.values() if call.request_id not in self._unsent]:
            if call.refusal is not None:
                continue
            if self._may_retry(call, now_s):
                self._unsent[call.request_id] = call
            else:
                actions.append(self._fail(call, error))
        return actions + (self._connect_now(now_s) if self._unsent else [])

    def _connect_now(self, now_s: float) -> list[Action[C]]:
        if self._connecting_until_s is not None or (
            self._connect_at_s is not None and self._connect_at_s > now_s
        ):
            return []
        self._connect_at_s = None
        self._connecting_until_s = now_s + self._settings.connect_timeout_s
        return [Connect()]

    def _send_due(self, now_s: float) -> list[Action[C]]:
        due = [call for call in self._unsent.values() if call.not_before_s <= now_s]
        for call in due:
            del self._unsent[call.request_id]
            call.attempts += 1
        return [Send(call) for call in due]

    def _may_retry(self, call: C, now_s: float) -> bool:
        if not call.idempotent or call.attempts >= self._settings.max_attempts:
            return False
        wait_s = self._jitter(self._settings.backoff_s * 2 ** (call.attempts - 1))
        # Rounding: ten times 0.1 gives less than 1.
        if now_s + wait_s >= call.deadline_s or self._retry_tokens < 1.0 - 1e-9:
            return False
        self._retry_tokens = max(0.0, self._retry_tokens - 1.0)
        call.not_before_s = now_s + wait_s
        return True

    def _put_off_connecting(self, now_s: float) -> None:
        mean_s = self._settings.connect_interval_s * 2.0 ** min(self._failures, 30)
        self._connect_at_s = now_s + self._jitter(min(mean_s, self._settings.connect_interval_max_s))
        self._failures += 1

    def _fail_unsent(self, error: NearsightError) -> list[Action[C]]:
        return [self._fail(call, error) for call in list(self._unsent.values())]

    def _fail(self, call: C, error: NearsightError) -> Fail[C]:
        self.calls.pop(call.request_id, None)
        self._unsent.pop(call.request_id, None)
        return Fail(call, error)

    def _too_late(self, call: C) -> NearsightError:
        if call.refusal is not None:
            return call.refusal
        if call.request_id in self._unsent:
            return DeadlineExceeded(f"no connection to {self._endpoint} before the deadline")
        return DeadlineExceeded(f"no answer from {self._endpoint} before the deadline")

    def _jitter(self, mean_s: float) -> float:
        return mean_s * self._rng.uniform(0.5, 1.5)
