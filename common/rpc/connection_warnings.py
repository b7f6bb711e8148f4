"""Rate-limited warnings about connections that a server closes, so that an attacker cannot fill the log."""

from __future__ import annotations

import threading

from nearsight.common.clock import Clock
from nearsight.common.logging import get_logger

_EVERY_S = 10.0
_REMEMBERED_REFUSALS = 256


class ConnectionWarnings:
    """Logs each kind of warning at most once per interval. Thread-safe.

    Parameters
    ----------
    clock : Clock
        Time between warnings.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = get_logger("rpc.listener")
        self._lock = threading.Lock()
        self._logged: dict[str, tuple[float, int]] = {}
        self._refused: set[str] = set()

    def warn(self, message: str, **facts: object) -> None:
        """Warn, unless the same message was logged recently; the next warning counts the omitted ones."""
        now_s = self._clock.monotonic()
        with self._lock:
            next_s, omitted = self._logged.get(message, (now_s, 0))
            again = now_s < next_s
            self._logged[message] = (next_s, omitted + 1) if again else (now_s + _EVERY_S, 0)
        if not again:
            self._log.warning(message, **facts, **({"times_before": omitted} if omitted else {}))

    def refused(self, key: str, address: str) -> None:
        """Warn about a key that is not allowed; once per key, because an unknown client tries repeatedly."""
        log = self._log.debug
        if key not in self._refused and len(self._refused) < _REMEMBERED_REFUSALS:
            self._refused.add(key)
            log = self._log.warning
        advice = "allow it with `nearsight keys allow`"
        log("client refused: its key is not allowed", address=address, public_key=key, advice=advice)
