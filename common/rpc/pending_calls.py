"""What a client does about its unanswered calls and its connection: events in, actions out, no sockets.

Rules:

- A call is sent when there is a connection, in the order of calling. Without one it waits for the server for
  ``connect_grace_s`` since the connection was lost (a daemon that restarts is back by then); after that,
  each further call makes one attempt to connect and fails if that fails.
- When a connection is lost, calls that were sent on it fail with `Unavailable`, since nobody knows whether
  they were served. Those of idempotent methods are sent again instead, after a jittered wait, as far as
  attempts, the retry budget and the deadline allow.
- A refused key fails all waiting calls at once: no later attempt would fare better.
- Whatever happens, a call ends at its deadline.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from typing import Generic, TypeVar

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded, Unavailable
from nearsight.common.rpc.settings import ChannelSettings

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PendingCall(Generic[T]):
    """A call that has no answer yet."""

    request_id: int
    item: T
    deadline_s: float
    idempotent: bool
    attempts: int = 0
    not_before_s: float = -math.inf  # clocks may start anywhere


@dataclass(frozen=True, slots=True)
class Send(Generic[T]):
    """Send the call on the connection."""

    call: PendingCall[T]


@dataclass(frozen=True, slots=True)
class Fail(Generic[T]):
    """The call ends with an error."""

    call: PendingCall[T]
    error: NearsightError


@dataclass(frozen=True, slots=True)
class Connect:
    """Try to connect; tell the outcome with `connected`, `refused` or `rejected`."""


Action = Send[T] | Fail[T] | Connect


class PendingCalls(Generic[T]):
    """The unanswered calls of one channel.

    Parameters
    ----------
    endpoint : str
        For messages.
    settings : ChannelSettings
        Grace, attempts, budget.
    rng : random.Random
        Jitter.
    """

    def __init__(self, endpoint: str, settings: ChannelSettings, rng: random.Random) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._rng = rng
        self._budget = RetryBudget(ratio=settings.retry_ratio, burst=settings.retry_burst)
        self._calls: dict[int, PendingCall[T]] = {}
        self._unsent: dict[int, PendingCall[T]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._up = False
        self._connecting_until_s: float | None = None
        self._connect_at_s: float | None = None
        self._down_since_s: float | None = None

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._up

    def submit(self, call: PendingCall[T], now_s: float) -> list[Action[T]]:
        """A new call."""
        if len(self._calls) >= self._settings.pending_limit:
            return [Fail(call, Overloaded(f"{len(self._calls)} calls to {self._endpoint} are unanswered"))]
        self._budget.on_call()
        self._calls[call.request_id] = call
        self._push_deadline(call)
        if self._up:
            call.attempts += 1
            return [Send(call)]
        self._unsent[call.request_id] = call
        return self._connect_now(now_s)

    def connected(self, now_s: float) -> list[Action[T]]:
        """There is a connection, and the peer is who it should be."""
        self._up, self._connecting_until_s, self._connect_at_s, self._down_since_s = True, None, None, None
        return self._send_due(now_s)

    def refused(self, error: NearsightError, now_s: float) -> list[Action[T]]:
        """An attempt to connect failed in a way that may pass."""
        self._up, self._connecting_until_s = False, None
        if self._down_since_s is None:
            self._down_since_s = now_s
        if now_s - self._down_since_s < self._settings.connect_grace_s:
            self._connect_at_s = now_s + self._jitter(self._settings.connect_interval_s)
            return []
        return self._fail_unsent(error)

    def rejected(self, error: NearsightError, now_s: float) -> list[Action[T]]:
        """An attempt to connect failed for good: a wrong key."""
        self._up, self._connecting_until_s, self._connect_at_s = False, None, None
        self._down_since_s = self._down_since_s or now_s
        return self._fail_unsent(error)

    def lost(self, error: NearsightError, now_s: float) -> list[Action[T]]:
        """The connection ended."""
        self._up, self._connecting_until_s, self._down_since_s = False, None, now_s
        actions: list[Action[T]] = []
        for call in [call for call in self._calls.values() if call.request_id not in self._unsent]:
            if self._may_retry(call, now_s):
                self._unsent[call.request_id] = call
            else:
                actions.append(self._fail(call, error))
        return actions + (self._connect_now(now_s) if self._unsent else [])

    def not_sent(self, call: PendingCall[T], now_s: float) -> None:
        """The connection had no room for the call: it is sent later."""
        if call.request_id in self._calls:
            call.attempts -= 1
            call.not_before_s = now_s + 0.01
            self._unsent[call.request_id] = call

    def answered(self, request_id: int) -> PendingCall[T] | None:
        """The call that an answer belongs to; None if it has ended already."""
        self._unsent.pop(request_id, None)
        return self._calls.pop(request_id, None)

    def tick(self, now_s: float) -> list[Action[T]]:
        """Time has passed."""
        actions: list[Action[T]] = []
        while self._deadlines and (
            self._deadlines[0][0] <= now_s or self._deadlines[0][1] not in self._calls
        ):
            call = self._calls.get(heapq.heappop(self._deadlines)[1])
            if call is not None:
                actions.append(self._fail(call, self._too_late(call)))
        if self._connecting_until_s is not None and now_s >= self._connecting_until_s:
            error = Unavailable(
                f"{self._endpoint} did not accept a connection within {self._settings.connect_timeout_s:g} s"
            )
            actions += self.refused(error, now_s)
        if self._unsent:
            actions += self._send_due(now_s) if self._up else self._connect_when_due(now_s)
        return actions

    def close(self, error: NearsightError) -> list[Action[T]]:
        """End all calls and forget the connection."""
        self._up, self._connecting_until_s, self._connect_at_s = False, None, None
        return [self._fail(call, error) for call in list(self._calls.values())]

    def next_due_s(self) -> float | None:
        """When `tick` next has something to do; it may be early, never late."""
        dues = [self._deadlines[0][0]] if self._deadlines else []
        if self._connecting_until_s is not None:
            dues.append(self._connecting_until_s)
        if self._unsent and not self._up and self._connect_at_s is not None:
            dues.append(self._connect_at_s)
        if self._unsent and self._up:
            dues.append(min(call.not_before_s for call in self._unsent.values()))
        return min(dues, default=None)

    def _connect_now(self, now_s: float) -> list[Action[T]]:
        if self._connecting_until_s is not None or (
            self._connect_at_s is not None and self._connect_at_s > now_s
        ):
            return []
        self._connect_at_s = None
        self._connecting_until_s = now_s + self._settings.connect_timeout_s
        return [Connect()]

    def _connect_when_due(self, now_s: float) -> list[Action[T]]:
        if self._connect_at_s is None or self._connect_at_s > now_s:
            return []
        return self._connect_now(now_s)

    def _send_due(self, now_s: float) -> list[Action[T]]:
        due = [call for call in self._unsent.values() if call.not_before_s <= now_s]
        for call in due:
            del self._unsent[call.request_id]
            call.attempts += 1
        return [Send(call) for call in due]

    def _may_retry(self, call: PendingCall[T], now_s: float) -> bool:
        if not call.idempotent or call.attempts >= self._settings.max_attempts:
            return False
        wait_s = self._jitter(self._settings.backoff_s * 2 ** (call.attempts - 1))
        if now_s + wait_s >= call.deadline_s or not self._budget.take():
            return False
        call.not_before_s = now_s + wait_s
        return True

    def _fail_unsent(self, error: NearsightError) -> list[Action[T]]:
        self._connect_at_s = None
        return [self._fail(call, error) for call in list(self._unsent.values())]

    def _fail(self, call: PendingCall[T], error: NearsightError) -> Fail[T]:
        self._calls.pop(call.request_id, None)
        self._unsent.pop(call.request_id, None)
        return Fail(call, error)

    def _too_late(self, call: PendingCall[T]) -> NearsightError:
        if call.request_id in self._unsent:
            return DeadlineExceeded(f"no connection to {self._endpoint} within the time given")
        return DeadlineExceeded(f"no answer from {self._endpoint} within the time given")

    def _jitter(self, mean_s: float) -> float:
        return mean_s * self._rng.uniform(0.5, 1.5)

    def _push_deadline(self, call: PendingCall[T]) -> None:
        # Deadlines of answered calls stay until they pass: cheaper than removing them, and the thread that
        # keeps the times need not be woken for each new call. Swept when they are many.
        if len(self._deadlines) > 1024 + 4 * len(self._calls):
            self._deadlines = [(c.deadline_s, c.request_id) for c in self._calls.values()]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (call.deadline_s, call.request_id))


class RetryBudget:
    """A bucket of tokens: each call adds a fraction of one, each retry takes one.

    Parameters
    ----------
    ratio : float
        Retries per call in the long run, e.g. 0.1.
    burst : float
        Tokens that the bucket holds at most, and at the start.
    """

    def __init__(self, *, ratio: float, burst: float) -> None:
        self._ratio = ratio
        self._burst = burst
        self._tokens = burst

    @property
    def tokens(self) -> float:
        """Retries that may be made at once."""
        return self._tokens

    def on_call(self) -> None:
        """A call was made for the first time."""
        self._tokens = min(self._burst, self._tokens + self._ratio)

    def take(self) -> bool:
        """Whether one more retry may be made; if so, it is counted."""
        # Sums of 0.1 fall short of 1 by rounding.
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True
