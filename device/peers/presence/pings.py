"""Limits on pings, and their execution.

Beacons can be forged. They must not cause this device to flood other hosts, therefore `PingLimits` limits the
pings to each address.

When many devices meet, all of them receive each other's beacons at once. If all connected at the same moment,
the handshakes would take so long that pings time out. Therefore `Pinger` pings only a few strangers (nodes
that have not joined) at a time. Pings of suspect peers are not delayed by this.

A flood of forged beacons creates more strangers than can be pinged. Therefore hosts take turns, and hosts
with the fewest failed pings come first: a real new device does not wait behind a host that floods.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from cachetools import FIFOCache

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError, Unauthenticated
from nearsight.common.logging import get_logger
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.peer import PingReply

LONGEST_BACKOFF_PERIODS = 4.0
ADDRESSES_AT_A_TIME = 2
"""Maximum number of concurrent pings to one node that beacons may cause; for a stranger, on each host."""
REMEMBERED_ADDRESSES = 1024
STRANGERS_AT_A_TIME = 4
WAITING_STRANGERS = 256
"""Maximum number of waiting strangers, more than realistically meet at once. Beyond it, one is dropped: from
the host with the most failures, then the most waiting strangers."""
REMEMBERED_HOSTS = 1024
REMEMBERED_REFUSALS = 256


@dataclass(frozen=True, slots=True)
class Ping:
    """A ping to an address."""

    node_id: NodeId | None
    """The node that must answer; None for a static peer without keys, whose id is not known in advance."""
    endpoint: str
    """The endpoint to ping."""
    number: int
    """Distinguishes it from other pings to the same address."""
    urgent: bool
    """Whether it concerns a suspect peer rather than a new node."""


Address = tuple[NodeId | None, str]
Ask = Callable[[NodeId | None, str], Future[PingReply]]


class PingLimits:
    """Pings in progress, and addresses whose pings failed.

    At most one ping per address is in progress. After repeated failures, beacons cause pings to an address
    less and less often (exponential back-off of at most `LONGEST_BACKOFF_PERIODS` periods).

    Parameters
    ----------
    period_s : float
        Period of the beacons [s].
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._number = 0
        self._under_way: dict[Address, int] = {}
        self._failures: FIFOCache[Address, tuple[int, float]] = FIFOCache(REMEMBERED_ADDRESSES)

    def is_under_way(self, node_id: NodeId | None, endpoint: str) -> bool:
        """Whether a ping to this address is in progress."""
        return (node_id, endpoint) in self._under_way

    def is_pinging(self, node_id: NodeId) -> bool:
        """Whether a ping to any address of this node is in progress."""
        return any(asked == node_id for asked, _ in self._under_way)

    def may_ping(self, node_id: NodeId | None, endpoint: str, now_s: float, *, joined: bool) -> bool:
        """Whether a beacon may cause a ping to the address now. ``joined``: whether the node has joined."""
        _, earliest_s = self._failures.get((node_id, endpoint), (0, now_s))
        host = _host(endpoint)
        at_once = sum(
            asked == node_id and (joined or _host(where) == host) for asked, where in self._under_way
        )
        return now_s >= earliest_s and at_once < ADDRESSES_AT_A_TIME

    def start(self, node_id: NodeId | None, endpoint: str, *, urgent: bool) -> Ping:
        """Start a new ping and return it."""
        self._number += 1
        self._under_way[node_id, endpoint] = self._number
        return Ping(node_id, endpoint, self._number, urgent)

    def ended(self, ping: Ping) -> bool:
        """Remove a ping that ended; returns whether it was still in progress."""
        address = (ping.node_id, ping.endpoint)
        awaited = self._under_way.get(address) == ping.number
        if awaited:
            del self._under_way[address]
        return awaited

    def back_off(self, node_id: NodeId | None, endpoint: str, now_s: float) -> None:
        """Delay the next ping to the address, after a failure or a conflict."""
        address = (node_id, endpoint)
        count = self._failures.get(address, (0, 0.0))[0] + 1
        exponent = min(count - 2, 16)  # far above the limit below; 2.0 ** 1024 would overflow
        periods = 0.0 if count == 1 else min(2.0**exponent, LONGEST_BACKOFF_PERIODS)
        self._failures[address] = (count, now_s + periods * self._period_s)

    def reset(self, node_id: NodeId | None, endpoint: str) -> None:
        """Reset the back-off of the address."""
        self._failures.pop((node_id, endpoint), None)

    def reset_node(self, node_id: NodeId) -> None:
        """Reset the back-off of all addresses of the node."""
        for address in [address for address in self._failures if address[0] == node_id]:
            del self._failures[address]

    def reset_all(self) -> None:
        """Discard the pings in progress, and reset all back-offs."""
        self._under_way.clear()
        self._failures.clear()


class Pinger:
    """Executes pings. One thread calls `begin` and `pump`; pings may end on any thread.

    Parameters
    ----------
    ask : callable
        Starts a call to a node (None: any node) at an endpoint.
    answered : callable
        Receives each answered ping: the ping, the answer, the round-trip time [s].
    failed : callable
        Receives each ping that was not answered.
    dropped : callable
        Receives each ping that was not started because too many strangers wait.
    clock : Clock
        The time.
    rng : random.Random
        Draws the next stranger of a host.
    """

    def __init__(
        self,
        ask: Ask,
        answered: Callable[[Ping, PingReply, float], None],
        failed: Callable[[Ping], None],
        dropped: Callable[[Ping], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._ask = ask
        self._answered = answered
        self._failed = failed
        self._dropped = dropped
        self._clock = clock
        self._rng = rng
        self._log = get_logger("peers.pinger")
        self._waiting: dict[str, list[Ping]] = {}  # by host; the host that waited longest comes first
        self._failures: FIFOCache[str, int] = FIFOCache(REMEMBERED_HOSTS)
        self._strangers = 0
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, ping: Ping) -> None:
        """Start an urgent ping at once, another one when it is its turn."""
        if ping.urgent:
            self._start(ping)
        else:
            if sum(map(len, self._waiting.values())) >= WAITING_STRANGERS:
                crowded = max(
                    self._waiting, key=lambda host: (self._failed_at(host), len(self._waiting[host]))
                )
                self._dropped(self._draw(crowded))
            self._waiting.setdefault(_host(ping.endpoint), []).append(ping)
            self.pump()

    def _failed_at(self, host: str) -> int:
        failures: int = self._failures.get(host, 0)
        return failures

    def _draw(self, host: str) -> Ping:
        """Take a random waiting ping of this host, and move the host to the end of the order."""
        waiting = self._waiting.pop(host)
        chosen = self._rng.randrange(len(waiting))
        waiting[chosen], waiting[-1] = waiting[-1], waiting[chosen]
        ping = waiting.pop()
        if waiting:
            self._waiting[host] = waiting
        return ping

    def pump(self) -> None:
        """Start waiting pings, up to the limit."""
        while self._waiting:
            with self._lock:
                if self._strangers >= STRANGERS_AT_A_TIME:
                    return
                self._strangers += 1
            self._start(self._draw(min(self._waiting, key=self._failed_at)))

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
                    host = _host(ping.endpoint)
                    self._failures[host] = self._failed_at(host) + 1
        if error is not None:
            self._log_failure(ping, error)
            self._failed(ping)

    def _log_failure(self, ping: Ping, error: BaseException) -> None:
        """Log the first refusal of each endpoint as a warning, so that people see it; else at debug level."""
        new = isinstance(error, Unauthenticated) and ping.endpoint not in self._refused
        if new and len(self._refused) < REMEMBERED_REFUSALS:
            self._refused.add(ping.endpoint)
            self._log.warning(
                "a device does not share with this one",
                endpoint=ping.endpoint,
                reason=str(error),
                advice="both need the other's key in the folder peers.allowed "
                "(table [device.recognizer.peers]): `nearsight keys allow`",
            )
        else:
            self._log.debug("ping failed", endpoint=ping.endpoint, reason=str(error))


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
