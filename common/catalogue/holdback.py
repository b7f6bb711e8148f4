"""The holdback queue: one request in flight per object model (dissertation, section 3.5.4).

Elsewhere this is called single-flight. Photos of an object that is not cached come in quick succession, and
each would ask for the same model. What is already asked for is held back. What failed waits longer after each
failure. Neither blocks another object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure in a row: ``first_s · 2^(n-1)``, at most ``longest_s``."""

    first_s: float = 0.5
    longest_s: float = 60.0

    def after(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))


@dataclass(slots=True)
class _Entry:
    """An object that is in flight until, or held back until, ``until_s``."""

    in_flight: bool
    until_s: float
    failures: int = 0


class HoldbackQueue:
    """Decides which models to ask for now; the caller does the asking and reports back.

    Parameters
    ----------
    answer_within_s : float
        A request that was neither answered nor failed after this time counts as failed: an answer that
        never comes must not hold its object back for ever.
    backoff : Backoff
        Waiting times after failures.
    """

    def __init__(self, answer_within_s: float = 30.0, backoff: Backoff | None = None) -> None:
        self._answer_within_s = answer_within_s
        self._backoff = backoff if backoff is not None else Backoff()
        self._entries: dict[str, _Entry] = {}

    @property
    def in_flight(self) -> int:
        """Number of objects that are being asked for."""
        return sum(entry.in_flight for entry in self._entries.values())

    def holds_back(self, object_id: str, now_s: float) -> bool:
        """Whether an object failed so recently that it is not asked for yet."""
        entry = self._entries.get(object_id)
        return entry is not None and not entry.in_flight and entry.until_s > now_s

    def take(self, object_ids: Iterable[str], now_s: float, limit: int) -> tuple[str, ...]:
        """Choose at most ``limit`` objects that did not fail before, to ask for now; they are in flight then.

        Parameters
        ----------
        object_ids : iterable of str
            What is wanted, the most wanted first.
        now_s : float
            The time.
        limit : int
            Objects per request.
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
        """Choose one object that failed before and has waited long enough; it is in flight then.

        One at a time and apart from the others: whatever makes it fail must not fail them too. Who failed
        least often is first, so that an object that always fails keeps back none that failed beside it once.
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
        """The models came; they may be asked for again if they are ever needed again."""
        for object_id in object_ids:
            self._entries.pop(object_id, None)

    def failed(self, object_ids: Iterable[str], now_s: float) -> None:
        """The request failed or had no model for these objects: hold them back for a while."""
        for object_id in object_ids:
            failures = self._entries[object_id].failures + 1 if object_id in self._entries else 1
            self._entries[object_id] = _Entry(False, now_s + self._backoff.after(failures), failures)

    def retain(self, object_ids: Iterable[str]) -> None:
        """Forget failures of all other objects: they left the catalogue, or nobody wants them any more."""
        wanted = frozenset(object_ids)
        self._entries = {
            object_id: entry
            for object_id, entry in self._entries.items()
            if entry.in_flight or object_id in wanted
        }

    def next_retry_s(self, now_s: float) -> float | None:
        """Seconds until something that failed or went silent may be asked for again; None if nothing."""
        if not self._entries:
            return None
        return max(0.0, min(entry.until_s for entry in self._entries.values()) - now_s)

    def _expire(self, now_s: float) -> None:
        silent = [name for name, entry in self._entries.items() if entry.in_flight and entry.until_s <= now_s]
        self.failed(silent, now_s)
