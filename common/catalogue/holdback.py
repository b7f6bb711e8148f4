"""The holdback queue: one request in flight per object model (dissertation, section 3.5.4).

The technique is also known as single-flight. Photos of an uncached object arrive in quick succession, and
each would request the same model. The queue holds back a request for a model that is already in flight. After
failures it delays the next request, with exponential back-off. Neither delays the requests for other objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 60.0
"""Delay after the first failure [s], doubled by each further one, and its limit."""


@dataclass(slots=True)
class _Entry:
    """State of an object: in flight, or held back after failures, until the time ``until_s``."""

    in_flight: bool
    until_s: float
    failures: int = 0


class HoldbackQueue:
    """Decides which models to request now; the caller sends the requests and reports the results.

    Parameters
    ----------
    answer_within_s : float
        A request without a result after this time counts as failed, so that a lost response does not hold
        back its objects for ever.
    """

    def __init__(self, answer_within_s: float) -> None:
        self._answer_within_s = answer_within_s
        self._entries: dict[str, _Entry] = {}

    @property
    def in_flight(self) -> int:
        """Number of objects in flight."""
        return sum(entry.in_flight for entry in self._entries.values())

    def holds_back(self, object_id: str, now_s: float) -> bool:
        """Whether an object failed recently and must not be requested yet."""
        entry = self._entries.get(object_id)
        return entry is not None and not entry.in_flight and entry.until_s > now_s

    def take(self, object_ids: Iterable[str], now_s: float, limit: int) -> tuple[str, ...]:
        """Choose at most ``limit`` objects without failures to request now, and mark them as in flight.

        Parameters
        ----------
        object_ids : iterable of str
            Wanted objects, the most wanted first.
        now_s : float
            Current time.
        limit : int
            Maximum number of objects per request.
        """
        self._expire(now_s)
        chosen: list[str] = []
        for object_id in object_ids:
            if len(chosen) >= limit:
                break
            if object_id not in self._entries:
                self._entries[object_id] = _Entry(True, now_s + self._answer_within_s)
                chosen.append(object_id)
        return tuple(chosen)

    def take_retry(self, object_ids: Iterable[str], now_s: float) -> str | None:
        """Choose an object whose delay after failures is over, and mark it as in flight; None if none.

        Retries are sent one at a time and apart from other objects, so that the cause of the failure does not
        affect these. The object with the fewest failures is first. So an object that always fails does not
        delay the retry of one that failed once.
        """
        self._expire(now_s)
        due = [
            object_id
            for object_id in object_ids
            if (entry := self._entries.get(object_id)) is not None
            and not entry.in_flight
            and entry.until_s <= now_s
        ]
        if not due:
            return None
        chosen = min(due, key=lambda object_id: self._entries[object_id].failures)
        self._entries[chosen] = _Entry(True, now_s + self._answer_within_s, self._entries[chosen].failures)
        return chosen

    def succeeded(self, object_ids: Iterable[str]) -> None:
        """Remove objects whose models arrived; they can be requested again later."""
        for object_id in object_ids:
            self._entries.pop(object_id, None)

    def failed(self, object_ids: Iterable[str], now_s: float) -> None:
        """Hold back objects whose request failed or whose model was missing."""
        for object_id in object_ids:
            failures = self._entries[object_id].failures + 1 if object_id in self._entries else 1
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures - 1, 32))
            self._entries[object_id] = _Entry(False, now_s + delay_s, failures)

    def retain(self, object_ids: Iterable[str]) -> None:
        """Delete the failures of all other objects, which are no longer wanted or in the catalogue."""
        wanted = frozenset(object_ids)
        self._entries = {
            object_id: entry
            for object_id, entry in self._entries.items()
            if entry.in_flight or object_id in wanted
        }

    def next_retry_s(self, now_s: float) -> float | None:
        """Seconds until the next retry or expiry of a request in flight; None if there is neither."""
        if not self._entries:
            return None
        return max(0.0, min(entry.until_s for entry in self._entries.values()) - now_s)

    def _expire(self, now_s: float) -> None:
        silent = [name for name, entry in self._entries.items() if entry.in_flight and entry.until_s <= now_s]
        self.failed(silent, now_s)
