"""`nearsight bench rpc`: round trips of an echo, against raw pyzmq DEALER/ROUTER with blocking sockets.

Each server has a process of its own. Ours answers through the normal call path (envelope, queue, worker); the
raw server only moves frames. Rounds alternate between all series, so that slow periods of the machine affect
all of them equally. The ratio is computed per round.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import zmq
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity, ServerSecurity, generate_keys, read_secret_key
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext, Service
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, times_ms
from nearsight.experiments.bench.clients import answer_of, child, use_keys
from nearsight.protos import echo_pb2

SIZES_BYTES = (64, 40 * 1024, 2**20)
OURS, RAW = "nearsight", "pyzmq"
_TIMEOUT_S = 10.0

Echo = Callable[[bytes], None]


class EchoService(Service):
    """Returns its input: the complete call path without any work."""

    descriptor: ClassVar[ServiceDescriptor] = echo_pb2.DESCRIPTOR.services_by_name["Echo"]

    def echo(self, request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        """Return the text and the blobs of the request."""
        context.response_blobs.extend(context.blobs)
        return echo_pb2.EchoResponse(text=request.text)

    echo_once = echo


@dataclass(slots=True)
class _Series:
    """Round trips [ms] of one transport, with or without CURVE, with one size: one list per round."""

    transport: str
    curve: bool
    size_bytes: int
    echo: Echo
    rounds: list[list[float]] = field(default_factory=list)

    def measure(self, calls: int) -> None:
        """Measure one round."""
        self.rounds.append(times_ms(self.echo, [os.urandom(self.size_bytes)] * calls))

    def medians(self) -> list[float]:
        """The median of each round [ms]."""
        return [statistics.median(times) for times in self.rounds]

    def row(self) -> dict[str, Any]:
        """The result."""
        every_ms = sorted(time_ms for times in self.rounds for time_ms in times)
        medians = self.medians()
        return {
            "transport": self.transport,
            "curve": self.curve,
            "size_bytes": self.size_bytes,
            "p50_ms": round(statistics.median(every_ms), 4),
            "p99_ms": round(every_ms[int(len(every_ms) * 0.99)], 4),
            "p50_of_rounds_ms": [round(min(medians), 4), round(max(medians), 4)],
            "calls": len(every_ms),
        }


QUICK = {"rounds": 3, "calls": 30}


def run(
    report_step: ReportStep, sizes_bytes: Sequence[int] = SIZES_BYTES, rounds: int = 15, calls: int = 100
) -> Benchmark:
    """Measure all transports.

    Parameters
    ----------
    report_step : callable
        Called with the current step.
    sizes_bytes : sequence of int
        Sizes of the echoed blob.
    rounds, calls : int
        Alternating rounds, and calls of each series per round. A warm-up round before them is not counted.

    Returns
    -------
    Benchmark
        ``rows`` (transport, curve, size_bytes, p50_ms, p99_ms, ...), ``ratios`` (ours / raw pyzmq: the median
        over rounds of the ratio of medians, and its range) and ``environment``.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nearsight-bench-")))
        server, client = (generate_keys(folder, name) for name in ("server", "client"))
        allow_client(client.public_file, folder / "allowed")
        server_keys = ServerSecurity(server.secret_file, folder / "allowed")
        client_keys = ClientSecurity(client.secret_file, server.public_file)
        series = [
            _Series(transport, curve, size, echo)
            for transport in (RAW, OURS)
            for curve, *keys in ((False, None, None), (True, server_keys, client_keys))
            for echo in [stack.enter_context(_client(transport, *keys))]
            for size in sizes_bytes
        ]
        for number in range(-1, rounds):
            report_step(f"rpc: round {number + 1} of {rounds}")
            for one in series if number % 2 else reversed(series):
                one.measure(calls if number >= 0 else min(calls, 20))
        for one in series:
            del one.rounds[0]
    rows = [one.row() for one in sorted(series, key=lambda s: (s.size_bytes, s.curve, s.transport))]
    ratios = _ratios(series)
    shown = {(OURS, one["curve"], one["size_bytes"]): f"{one['p50_ratio']:.2f}" for one in ratios}
    table = [
        {
            **row,
            "secure": "yes" if row["curve"] else "no",
            "ratio": shown.get((row["transport"], row["curve"], row["size_bytes"]), ""),
        }
        for row in rows
    ]
    columns = {
        "size": "{size_bytes:,} B",
        "CURVE": "{secure}",
        "transport": "{transport}",
        "p50 ms": "{p50_ms:.3f}",
        "p99 ms": "{p99_ms:.3f}",
        "p50 / pyzmq": "{ratio}",
    }
    figures = {"rows": rows, "ratios": ratios, "environment": {"libzmq": zmq.zmq_version()}}
    return Benchmark("rpc", "Echo round trips, one call at a time", columns, table, figures)


def _ratios(series: Sequence[_Series]) -> list[dict[str, Any]]:
    raw = {(one.curve, one.size_bytes): one.medians() for one in series if one.transport == RAW}
    found = []
    for ours in (one for one in series if one.transport == OURS):
        pairs = zip(ours.medians(), raw[ours.curve, ours.size_bytes], strict=True)
        ratios = [mine_ms / raw_ms for mine_ms, raw_ms in pairs]
        found.append(
            {
                "curve": ours.curve,
                "size_bytes": ours.size_bytes,
                "p50_ratio": round(statistics.median(ratios), 3),
                "range": [round(min(ratios), 3), round(max(ratios), 3)],
            }
        )
    return found


@contextlib.contextmanager
def _client(
    transport: str, server_keys: ServerSecurity | None, client_keys: ClientSecurity | None
) -> Iterator[Echo]:
    """Start a server in its own process, and a client in this one."""
    serve, client = (_serve_ours, _our_client) if transport == OURS else (_serve_raw, _raw_client)
    with child(serve, server_keys) as server:
        yield from client(answer_of(server, _TIMEOUT_S), client_keys)


def _our_client(endpoint: str, keys: ClientSecurity | None) -> Iterator[Echo]:
    with Channel(endpoint, client_id="bench", security=keys) as channel:
        method = Stub(channel, EchoService.descriptor).echo
        request = echo_pb2.EchoRequest()

        def echo(blob: bytes) -> None:
            reply = method(request, timeout_s=_TIMEOUT_S, blobs=[blob])
            _check(reply.blobs[0].nbytes == len(blob))

        yield echo


def _raw_client(endpoint: str, keys: ClientSecurity | None) -> Iterator[Echo]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.rcvtimeo = int(_TIMEOUT_S * 1000)
    use_keys(socket, keys)
    socket.connect(endpoint)

    def echo(blob: bytes) -> None:
        socket.send(blob)
        _check(len(socket.recv()) == len(blob))

    try:
        yield echo
    finally:
        socket.close()
        context.term()


def _check(same: bool) -> None:
    if not same:
        raise RuntimeError("the echo differs from the request")


def _serve_ours(parent: Connection, keys: ServerSecurity | None) -> None:
    """Serve the echo through the complete call path: envelope, queue, workers."""
    with RpcServer([EchoService()], tier="bench", settings=ServerSettings(), security=keys) as server:
        _announce(parent, server.endpoint)


def _serve_raw(parent: Connection, keys: ServerSecurity | None) -> None:
    """Serve the echo with a blocking ROUTER socket."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    if keys:
        socket.curve_server = True
        socket.curve_secretkey = read_secret_key(keys.secret_key_file).secret.encode()
    socket.bind("tcp://127.0.0.1:0")

    def echo() -> None:
        while True:  # until the process ends: a blocking socket cannot be interrupted
            socket.send_multipart(socket.recv_multipart())

    threading.Thread(target=echo, daemon=True).start()
    _announce(parent, socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())  # type: ignore[union-attr]


def _announce(parent: Connection, endpoint: str) -> None:
    """Send the address of the server to the parent, and wait for the end."""
    parent.send("ready")
    parent.send(endpoint)
    parent.recv()
