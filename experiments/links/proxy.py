"""A TCP proxy that makes loopback behave like a link, for machines whose kernel has no netem.

It copies bytes without interpreting them, so ZeroMQ with CURVE passes unchanged. Each direction has one
`LinkDirection` that all connections share. The number of bytes of a connection that wait for the link is
bounded. At the limit, the proxy stops reading, and TCP's back-pressure stops the sender. If one side closes
or fails, the other side is closed after the bytes in transit were delivered. If the server refuses, the
client is closed at once. The handshake takes one round trip, as on a real link; TCP's slow start is not
modelled.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nearsight.common.errors import AddressInUse
from nearsight.experiments.links.link import LinkDirection, LinkShape

CHUNK_BYTES = 8 * 1024
"""Largest piece that occupies the link at once, and unit in which connections share the link [bytes]."""
BUFFER_BYTES = 1024 * 1024
"""Maximum number of bytes of one connection that wait for one direction of the link. Those that are in
transit while the link is busy are not counted."""
LATENESS_SAMPLES = 20_000
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send a reset


class _PreciseSelector(selectors.EpollSelector):
    """epoll for any number of connections, with precise waits.

    epoll rounds every wait up to a whole millisecond, and `select` supports no descriptors above 1023.
    Therefore `select` waits for the descriptor of epoll alone.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        select.select((self,), (), (), timeout if timeout is None else max(0.0, timeout))
        return super().select(0)


@dataclass(slots=True)
class DirectionCounters:
    """Counters of one direction, and delays caused by the proxy itself."""

    bytes: int = 0
    chunks: int = 0
    lateness_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATENESS_SAMPLES))

    def as_dict(self) -> dict[str, float]:
        """Counters, and percentiles of the delay of deliveries against the schedule [ms]."""
        late_ms = np.array(self.lateness_s or [0.0]) * 1000
        p50, p99 = np.percentile(late_ms, [50, 99])
        return {
            "bytes": self.bytes,
            "chunks": self.chunks,
            "late_p50_ms": round(float(p50), 3),
            "late_p99_ms": round(float(p99), 3),
        }


class _Pipe:
    """One direction of one connection: reads, schedules, delivers."""

    def __init__(self, link: LinkDirection, counters: DirectionCounters) -> None:
        self._link = link
        self._counters = counters
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._changed = asyncio.Event()
        self._ended = False

    async def run(self, source: socket.socket, target: socket.socket) -> None:
        """Copy until the source ends, then until the link is empty."""
        reading = asyncio.create_task(self._read(source))
        try:
            await self._deliver(target)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, source: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(source, CHUNK_BYTES):
                self._queue.append((self._link.admit(len(data), time.monotonic()), data))
                self._queued_bytes += len(data)
                self._changed.set()
                while self._queued_bytes >= BUFFER_BYTES + self._link.in_transit_bytes:
                    self._changed.clear()
                    await self._changed.wait()
        except OSError:
            pass  # a reset is handled like a close; bytes in transit are still delivered
        finally:
            self._ended = True
            self._changed.set()

    async def _deliver(self, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._queue:
                due_s, data = self._queue.popleft()
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                self._counters.lateness_s.append(time.monotonic() - due_s)
                await loop.sock_sendall(target, data)
                self._queued_bytes -= len(data)
                self._counters.bytes += len(data)
                self._counters.chunks += 1
                self._changed.set()
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()


class ShapingProxy:
    """A shaped link to one server; runs in its own thread.

    Parameters
    ----------
    upstream : (host, port)
        The server that the link leads to.
    shape : LinkShape
        Properties of the link.
    listen : (host, port)
        Address at which clients connect; port 0 picks a free one.
    rng : numpy.random.Generator
        Source of jitter and of lost connections.
    compensation_s : float
        Overhead of the proxy per direction [s], as calibrated; subtracted from the delay.

    Raises
    ------
    AddressInUse
        From `start`, if the address is taken.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        shape: LinkShape,
        *,
        rng: np.random.Generator,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        compensation_s: float = 0.0,
    ) -> None:
        self._upstream = upstream
        self._listen = listen
        self._rng = rng
        self._shape = shape
        self._compensation_s = compensation_s
        self._links = {way: LinkDirection(rng) for way in ("up", "down")}
        self._reshape()
        self.counters = {way: DirectionCounters() for way in self._links}
        self.connections = 0
        self.refused = 0
        self.lost = 0
        self._open: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._server: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Address at which clients connect; the actual port is known after `start`."""
        if self._server is None:
            return self._listen
        host, port = self._server.getsockname()[:2]
        return str(host), int(port)

    @property
    def running(self) -> bool:
        """Whether it serves; False before `start`, and after `stop` or an error."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Listen and serve in the background."""
        try:
            server = socket.create_server(self._listen, backlog=64)
        except OSError as error:
            host, port = self._listen
            raise AddressInUse(
                f"cannot listen on {host}:{port}: {error.strerror}", advice="use port 0 to pick a free one"
            ) from error
        server.setblocking(False)
        runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_PreciseSelector()))
        self._server, self._loop = server, runner.get_loop()
        self._thread = threading.Thread(target=self._run, args=(runner, server), name="shaper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and the listening socket. Idempotent."""
        self._call(self._stopping.set)
        if self._thread is not None:
            self._thread.join()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """Break all connections now, like a link failure."""
        self._call(self._cut_all)

    def reshape(self, shape: LinkShape) -> None:
        """Change the shape of the link; connections stay open, and bytes are never reordered."""
        self._shape = shape
        self._call(self._reshape)

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the connections, if that thread runs."""
        if self._loop is not None and self.running:
            self._loop.call_soon_threadsafe(function)

    def as_dict(self) -> dict[str, object]:
        """Counters for the report."""
        return {
            "connections": self.connections,
            "refused": self.refused,
            "lost": self.lost,
            **{direction: counters.as_dict() for direction, counters in self.counters.items()},
        }

    def __enter__(self) -> ShapingProxy:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _run(self, runner: asyncio.Runner, listener: socket.socket) -> None:
        with runner:  # cancels connections that are still open, and waits for them to end
            runner.run(self._serve_until_stopped(listener))

    async def _serve_until_stopped(self, listener: socket.socket) -> None:
        # A callback accepts connections: a task that is cancelled during accept would lose the new socket.
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._accept, listener)
        await self._stopping.wait()
        loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # the client has closed the connection already
            return
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: client.close())  # also of a task that was cancelled before its start

    def _cut_all(self) -> None:
        self.lost += len(self._open)
        for task in self._open:
            task.cancel()

    def _reshape(self) -> None:
        shape = self._shape
        delay_s = max(0.0, shape.rtt_ms / 2000 - self._compensation_s)
        for direction, rate_mbps in (("up", shape.up_mbps), ("down", shape.down_mbps)):
            self._links[direction].reshape(delay_s, rate_mbps, shape.jitter_ms / 1000)

    async def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        lost = True  # unless one side ended the connection
        try:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await asyncio.get_running_loop().sock_connect(server, self._upstream)
            except OSError:
                self.refused += 1
                return
            self.connections += 1
            await asyncio.sleep(self._shape.rtt_ms / 1000)  # the handshake
            lost = await self._carry(client, server)
            self.lost += lost
        finally:
            for end in (client, server):
                if lost:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()

    async def _carry(self, client: socket.socket, server: socket.socket) -> bool:
        """Copy in both directions until one side ends; True if the link broke first."""
        losses = self._shape.loss_per_minute
        lifetime_s = float(self._rng.exponential(60 / losses)) if losses else None
        ways = [
            asyncio.create_task(_Pipe(self._links[name], self.counters[name]).run(source, target))
            for name, source, target in (("up", client, server), ("down", server, client))
        ]
        try:
            ended, _ = await asyncio.wait(ways, timeout=lifetime_s, return_when=asyncio.FIRST_COMPLETED)
            return not ended
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
