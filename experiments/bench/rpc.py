"""`nearsight bench rpc`: round trips of an echo, against raw pyzmq DEALER/ROUTER with blocking sockets.

Each server is a process of its own. Ours answers through the normal call path (envelope, queue, worker);
the raw peer only moves frames. Rounds alternate between all of them, so that a slow moment of the machine
meets each alike, and the ratio is taken per round.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import google.protobuf
import zmq
from rich.table import Table

from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import (
    ClientSecurity,
    allow_client,
    generate_keys,
    read_public_key,
    read_secret_key,
)
from nearsight.common.rpc.service import EchoService
from nearsight.experiments.bench.rpc_server import ALLOWED, CLIENT_KEY, SERVER_KEY
from nearsight.protos import echo_pb2

SIZES_BYTES = (64, 40 * 1024, 2**20)
OURS, RAW = "nearsight", "pyzmq"
_TIMEOUT_S = 10.0

Echo = Callable[[bytes], None]
Progress = Callable[[str], None]


@dataclass(slots=True)
class _Series:
    """Round trips [ms] of one transport, with or without CURVE, at one size: one list per round."""

    transport: str
    curve: bool
    size_bytes: int
    echo: Echo
    rounds: list[list[float]] = field(default_factory=list)

    def measure(self, calls: int) -> None:
        """One more round."""
        blob = os.urandom(self.size_bytes)
        times_ms = []
        for _ in range(calls):
            start_s = time.perf_counter()
            self.echo(blob)
            times_ms.append((time.perf_counter() - start_s) * 1000.0)
        self.rounds.append(times_ms)

    def row(self) -> dict[str, Any]:
        """The result."""
        times_ms = sorted(time_ms for times in self.rounds for time_ms in times)
        medians = [statistics.median(times) for times in self.rounds]
        return {
            "transport": self.transport,
            "curve": self.curve,
            "size_bytes": self.size_bytes,
            "p50_ms": round(statistics.median(times_ms), 4),
            "p99_ms": round(times_ms[int(len(times_ms) * 0.99)], 4),
            "p50_of_rounds_ms": [round(min(medians), 4), round(max(medians), 4)],
            "calls": len(times_ms),
        }


def run_rpc_bench(
    *,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    rounds: int = 15,
    calls: int = 100,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure all transports.

    Parameters
    ----------
    sizes_bytes : sequence of int
        Sizes of the echoed blob.
    rounds, calls : int
        Alternating rounds, and calls of each series in a round. One more round before them is not counted.
    progress : callable or None
        Told what is going on.

    Returns
    -------
    dict
        ``rows`` (transport, curve, size_bytes, p50_ms, p99_ms, ...), ``ratios`` (ours / raw pyzmq: the median
        over rounds of the ratio of medians, and its range) and ``environment``.
    """
    tell = progress or (lambda _: None)
    with contextlib.ExitStack() as stack:
        keys = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nearsight-bench-")))
        generate_keys(keys, SERVER_KEY)
        allow_client(generate_keys(keys, CLIENT_KEY).public_file, keys / ALLOWED)
        series = [
            _Series(transport, curve, size, echo)
            for transport in (RAW, OURS)
            for curve in (False, True)
            for echo in [stack.enter_context(_client(transport, keys if curve else None))]
            for size in sizes_bytes
        ]
        for number in range(-1, rounds):
            tell(f"rpc: round {number + 1} of {rounds}")
            for one in series if number % 2 else reversed(series):
                one.measure(calls if number >= 0 else min(calls, 20))
        for one in series:
            del one.rounds[0]
    return {
        "rows": [one.row() for one in sorted(series, key=lambda s: (s.size_bytes, s.curve, s.transport))],
        "ratios": _ratios(series),
        "environment": _environment(),
    }


def rpc_table(result: dict[str, Any]) -> Table:
    """The result for a person."""
    table = Table(title="Echo round trips, one call at a time")
    for name in ("size", "CURVE", "transport", "p50 ms", "p99 ms", "p50 / pyzmq"):
        table.add_column(name, justify="left" if name == "transport" else "right")
    ratios = {(r["curve"], r["size_bytes"]): r["p50_ratio"] for r in result["ratios"]}
    for row in result["rows"]:
        ours = row["transport"] == OURS
        table.add_row(
            f"{row['size_bytes']:,} B",
            "yes" if row["curve"] else "no",
            row["transport"],
            f"{row['p50_ms']:.3f}",
            f"{row['p99_ms']:.3f}",
            f"{ratios[row['curve'], row['size_bytes']]:.2f}" if ours else "",
        )
    return table


def _ratios(series: Sequence[_Series]) -> list[dict[str, Any]]:
    by_key = {(s.transport, s.curve, s.size_bytes): s for s in series}
    found = []
    for (transport, curve, size), ours in by_key.items():
        if transport != OURS:
            continue
        pairs = zip(ours.rounds, by_key[RAW, curve, size].rounds, strict=True)
        ratios = [statistics.median(mine) / statistics.median(raw) for mine, raw in pairs]
        found.append(
            {
                "curve": curve,
                "size_bytes": size,
                "p50_ratio": round(statistics.median(ratios), 3),
                "range": [round(min(ratios), 3), round(max(ratios), 3)],
            }
        )
    return found


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "libzmq": zmq.zmq_version(),
        "protobuf": google.protobuf.__version__,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


@contextlib.contextmanager
def _client(transport: str, keys: Path | None) -> Iterator[Echo]:
    """A server in its own process, and a client of it in this one."""
    kind = {OURS: "nearsight", RAW: "raw"}[transport]
    with _server_process(kind, keys) as endpoint:
        if transport == OURS:
            security = ClientSecurity(_secret(keys, CLIENT_KEY), _public(keys)) if keys else None
            with Channel(endpoint, client_id="bench", security=security) as channel:
                method = Stub(channel, EchoService.descriptor).echo
                request = echo_pb2.EchoRequest()

                def echo(blob: bytes) -> None:
                    reply = method(request, timeout_s=_TIMEOUT_S, blobs=[blob])
                    _check(reply.blobs[0].nbytes == len(blob))

                yield echo
        else:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.rcvtimeo = int(_TIMEOUT_S * 1000)
            if keys:
                pair = read_secret_key(_secret(keys, CLIENT_KEY))
                socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
                socket.curve_serverkey = _public(keys).encode()
            socket.connect(endpoint)

            def echo_raw(blob: bytes) -> None:
                socket.send(blob)
                _check(len(socket.recv()) == len(blob))

            try:
                yield echo_raw
            finally:
                socket.close()
                context.term()


@contextlib.contextmanager
def _server_process(kind: str, keys: Path | None) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "nearsight.experiments.bench.rpc_server",
        kind,
        *([str(keys)] if keys else []),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    out: IO[bytes] | None = process.stdout
    try:
        endpoint = out.readline().decode().strip() if out else ""
        if not endpoint:
            raise RuntimeError(f"the {kind} echo server did not start")
        yield endpoint
    finally:
        process.terminate()
        process.communicate()


def _secret(keys: Path, name: str) -> Path:
    return keys / f"{name}.key_secret"


def _public(keys: Path) -> str:
    return read_public_key(keys / f"{SERVER_KEY}.key")


def _check(same: bool) -> None:
    if not same:
        raise RuntimeError("the echo is not what was sent")
