"""Pings: which addresses may be pinged now, and carrying them out.

Beacons may be forged and must not make this device a nuisance: `PingRation` limits pings per address.
Where a crowd meets, everybody hears of everybody at once, and if all connected at the same moment, the
handshakes would take so long that pings time out: `Pinger` asks strangers a few at a time. Peers that may be
gone do not wait for that. A flood of forged beacons makes more strangers than can be asked. So hosts take
turns, those first where the fewest pings failed: a host that floods waits behind a true newcomer.
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
"""Addresses of one node that are pinged at the same time because of beacons; of a stranger on each host."""
REMEMBERED_ADDRESSES = 1024
STRANGERS_AT_A_TIME = 4
WAITING_STRANGERS = 256
"""More than meet at once; beyond that one makes room, of the host with most failures, then most waiting."""
REMEMBERED_HOSTS = 1024
REMEMBERED_REFUSALS = 256


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask an address which node is there."""

    node_id: NodeId | None
    """The node that must answer; None for a static peer without keys, whose id is not known before."""
    endpoint: str
    """Where to ask."""
    number: int
    """Tells it from other pings of the same address."""
    urgent: bool
    """It concerns a peer that may be gone, not a new node."""


Address = tuple[NodeId | None, str]
Ask = Callable[[NodeId | None, str], Future[PingReply]]


class PingRation:
    """Pings under way, and addresses that failed.

    Of each address one ping is under way at a time. One that fails again and again is asked less and less
    often, but every few periods still.

    Parameters
    ----------
    period_s : float
        Of the beacons.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._number = 0
        self._under_way: dict[Address, int] = {}
        self._failures: FIFOCache[Address, tuple[int, float]] = FIFOCache(REMEMBERED_ADDRESSES)

    def is_under_way(self, node_id: NodeId | None, endpoint: str) -> bool:
        """Whether this address is being pinged."""
        return (node_id, endpoint) in self._under_way

    def asks_for(self, node_id: NodeId) -> bool:
        """Whether any address of this node is being pinged."""
        return any(asked == node_id for asked, _ in self._under_way)

    def may_ask(self, node_id: NodeId | None, endpoint: str, now_s: float, *, joined: bool) -> bool:
        """Whether a beacon is reason enough to ping the address, of a node that has joined or not."""
        _, earliest_s = self._failures.get((node_id, endpoint), (0, now_s))
        host = _host(endpoint)
        at_once = sum(
            asked == node_id and (joined or _host(where) == host) for asked, where in self._under_way
        )
        return now_s >= earliest_s and at_once < ADDRESSES_AT_A_TIME

    def ask(self, node_id: NodeId | None, endpoint: str, *, urgent: bool) -> Ping:
        """A new ping, under way from now on."""
        self._number += 1
        self._under_way[node_id, endpoint] = self._number
        return Ping(node_id, endpoint, self._number, urgent)

    def ended(self, ping: Ping) -> bool:
        """A ping has come to its end; whether it was still awaited."""
        address = (ping.node_id, ping.endpoint)
        awaited = self._under_way.get(address) == ping.number
        if awaited:
            del self._under_way[address]
        return awaited

    def back_off(self, node_id: NodeId | None, endpoint: str, now_s: float) -> None:
        """The ping failed, or brought a conflict: wait before the next one."""
        address = (node_id, endpoint)
        count = self._failures.get(address, (0, 0.0))[0] + 1
        periods = 0.0 if count == 1 else min(2.0 ** (count - 2), LONGEST_BACKOFF_PERIODS)
        self._failures[address] = (count, now_s + periods * self._period_s)

    def forgive(self, node_id: NodeId | None, endpoint: str) -> None:
        """The address is worth a ping again."""
        self._failures.pop((node_id, endpoint), None)

    def forgive_node(self, node_id: NodeId) -> None:
        """All addresses of the node are worth a ping again."""
        for address in [address for address in self._failures if address[0] == node_id]:
            del self._failures[address]

    def start_over(self) -> None:
        """Await nothing any more, and forgive all."""
        self._under_way.clear()
        self._failures.clear()


class Pinger:
    """Pings under way. One thread begins them and calls `pump`; they may end on any.

    Parameters
    ----------
    ask : callable
        Begins a call to a node (None: any) at an endpoint.
    answered : callable
        Told of an answer: ping, answer, seconds that it took.
    failed : callable
        Told of a ping that was not answered.
    dropped : callable
        Told of a ping that was not begun, as too many strangers wait.
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
        self._waiting: dict[str, list[Ping]] = {}  # by host, first the one whose turn was longest ago
        self._failures: FIFOCache[str, int] = FIFOCache(REMEMBERED_HOSTS)
        self._strangers = 0
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, ping: Ping) -> None:
        """Ping now, or when it is this stranger's turn."""
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
        """Take one that waits for this host, any of them; the host's next turn is the last."""
        waiting = self._waiting.pop(host)
        chosen = self._rng.randrange(len(waiting))
        waiting[chosen], waiting[-1] = waiting[-1], waiting[chosen]
        ping = waiting.pop()
        if waiting:
            self._waiting[host] = waiting
        return ping

    def pump(self) -> None:
        """Begin waiting pings, as many as there is room for."""
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


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
