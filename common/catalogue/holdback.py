"""The holdback queue: one request in flight per object model (dissertation, section 3.5.4).

The technique is also known as single-flight. Photos of an uncached object arrive in quick succession, and
each would request the same model. The queue holds back a request for a model that is already in flight. After
failures it delays the next request, with exponential back-off. Neither delays the requests for other objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 60.0
"""Delay after the first failure [s], doubled by each further one, and its limit."""


class _Failures(NamedTuple):
    """Number of consecutive failures of an object, and the time until which it is held back."""

    number: int
    until_s: float


class HoldbackQueue:
    """Decides which models to request now; the caller sends the requests and reports all results."""

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._failures: dict[str, _Failures] = {}

    @property
    def in_flight(self) -> int:
        """Number of objects in flight."""
        return len(self._in_flight)

    def holds_back(self, object_id: str, now_s: float) -> bool:
        """Whether an object failed recently and must not be requested yet."""
        failures = self._failures.get(object_id)
        return failures is not None and object_id not in self._in_flight and failures.until_s > now_s

    def take(self, object_ids: Iterable[str], limit: int) -> tuple[str, ...]:
        """Choose at most ``limit`` objects without failures to request now, and mark them as in flight.

        Parameters
        ----------
        object_ids : iterable of str
            Wanted objects, the most wanted first.
        limit : int
            Maximum number of objects per request.
        """
        new = (one for one in object_ids if one not in self._in_flight and one not in self._failures)
        chosen = tuple(islice(new, limit))
        self._in_flight.update(chosen)
        return chosen

    def take_retry(self, object_ids: Iterable[str], now_s: float) -> str | None:
        """Choose an object whose delay after failures is over, and mark it as in flight; None if none.

        Retries are sent one at a time and apart from other objects, so that the cause of the failure does not
        affect these. The object with the fewest failures is first. So an object that always fails does not
        delay the retry of one that failed once.
        """
        due = [
            object_id
            for object_id in object_ids
            if object_id in self._failures
            and object_id not in self._in_flight
            and not self.holds_back(object_id, now_s)
        ]
        chosen = min(due, key=lambda object_id: self._failures[object_id].number, default=None)
        if chosen is not None:
            self._in_flight.add(chosen)
        return chosen

    def succeeded(self, object_ids: Iterable[str]) -> None:
        """Remove objects whose models arrived; they can be requested again later."""
        for object_id in object_ids:
            self._in_flight.discard(object_id)
            self._failures.pop(object_id, None)

    def failed(self, object_ids: Iterable[str], now_s: float) -> None:
        """Hold back objects whose request failed or whose model was missing."""
        for object_id in object_ids:
            number = self._failures[object_id].number + 1 if object_id in self._failures else 1
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(number - 1, 32))
            self._failures[object_id] = _Failures(number, now_s + delay_s)
            self._in_flight.discard(object_id)

    def retain(self, object_ids: Iterable[str]) -> None:
        """Delete the failures of all other objects, which are no longer wanted or in the catalogue."""
        kept = self._in_flight.union(object_ids)
        self._failures = {name: failures for name, failures in self._failures.items() if name in kept}

    def next_retry_s(self, object_ids: Iterable[str], now_s: float) -> float | None:
        """Seconds until the next retry of one of these objects; None if none of them waits for one."""
        waiting = [
            self._failures[name].until_s
            for name in object_ids
            if name in self._failures and name not in self._in_flight
        ]
        return max(0.0, min(waiting) - now_s) if waiting else None
