"""Carries out pings, those of strangers a few at a time.

Where a crowd meets, everybody hears of everybody at once. If all of them connected at the same moment, the
handshakes would take so long that pings time out. Peers that may be gone do not wait for that.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError, Unauthenticated
from nearsight.common.logging import get_logger
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer import PingReply
from nearsight.device.peers.presence_actions import Ping

STRANGERS_AT_A_TIME = 4
REMEMBERED_REFUSALS = 256

Answered = Callable[[Ping, PingReply, float], None]


class Pinger:
    """Pings under way. One thread begins them and calls `pump`; they may end on any.

    Parameters
    ----------
    ask : callable
        Begins a call to a node (None: whoever is there) at an endpoint.
    answered : callable
        Told of an answer: ping, answer, seconds that it took.
    failed : callable
        Told of a ping that was not answered.
    clock : Clock
        The time.
    """

    def __init__(
        self,
        ask: Callable[[NodeId | None, str], Future[PingReply]],
        answered: Answered,
        failed: Callable[[Ping], None],
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._answered = answered
        self._failed = failed
        self._clock = clock
        self._log = get_logger("peers.pinger")
        self._waiting: deque[Ping] = deque()
        self._strangers = 0
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, ping: Ping) -> None:
        """Ping now, or when it is this stranger's turn."""
        if ping.urgent:
            self._start(ping)
        else:
            self._waiting.append(ping)
            self.pump()

    def pump(self) -> None:
        """Begin what has waited, now that others have ended."""
        while self._waiting:
            with self._lock:
                if self._strangers >= STRANGERS_AT_A_TIME:
                    return
                self._strangers += 1
            self._start(self._waiting.popleft())

    def _start(self, ping: Ping) -> None:
        began_s = self._clock.monotonic()
        try:
            future = self._ask(ping.node_id, ping.endpoint)
        except NearsightError as error:
            self._end(ping, error)
            return
        future.add_done_callback(functools.partial(self._done, ping, began_s))

    def _done(self, ping: Ping, began_s: float, future: Future[PingReply]) -> None:
        error = future.exception()
        if error is None:
            self._end(ping, None)
            self._answered(ping, future.result(), self._clock.monotonic() - began_s)
        else:
            self._end(ping, error)

    def _end(self, ping: Ping, error: BaseException | None) -> None:
        if not ping.urgent:
            with self._lock:
                self._strangers -= 1
        if error is not None:
            self._log_failure(ping, error)
            self._failed(ping)

    def _log_failure(self, ping: Ping, error: BaseException) -> None:
        """A person must hear of a refusal, but not each time."""
        new = isinstance(error, Unauthenticated) and ping.endpoint not in self._refused
        if new and len(self._refused) < REMEMBERED_REFUSALS:
            self._refused.add(ping.endpoint)
            self._log.warning(
                "a device does not share with this one",
                endpoint=ping.endpoint,
                reason=str(error),
                advice="each needs the other's key in its folder peers.allowed: `nearsight keys allow`",
            )
        else:
            self._log.debug("ping failed", endpoint=ping.endpoint, reason=str(error))
