"""Measures a link from outside: small echoes for the round trip, a burst for the rate of each direction.

It runs as a separate process (``python -m nearsight.experiments.links.probe``), so that it does not share an
interpreter lock with the proxy that it measures. It serves on its own port, prints that port and then
executes commands, one JSON list per line: ``["rtt", PORT, COUNT]`` or ``["rate", PORT, "up" | "down",
BYTES]``. With ``--listen`` it only serves, on another host, until it is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from pathlib import Path

from nearsight.common.files import write_json

_ECHO, _SINK, _SOURCE = b"E", b"S", b"G"
_HOST = "127.0.0.1"


def serve(listener: socket.socket) -> None:
    """Serve connections, each in the mode that its first byte selects."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_one, args=(connection,), daemon=True).start()


def _serve_one(connection: socket.socket) -> None:
    with connection, contextlib.suppress(ConnectionError):  # a reset ends a measurement like a close
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mode = connection.recv(1)
        if mode == _ECHO:
            while data := connection.recv(64):
                connection.sendall(data)
        elif mode == _SINK:
            size_bytes = int.from_bytes(connection.recv(8, socket.MSG_WAITALL))
            connection.sendall(json.dumps(_time_arrival(connection, size_bytes)).encode() + b"\n")
            connection.recv(1)
        elif mode == _SOURCE:
            connection.sendall(bytes(int.from_bytes(connection.recv(8, socket.MSG_WAITALL))))
            connection.recv(1)


def _receive_some(connection: socket.socket, most_bytes: int) -> bytes:
    data = connection.recv(most_bytes)
    if not data:
        raise ConnectionError("the probe's peer closed the connection")
    return data


def _time_arrival(connection: socket.socket, size_bytes: int) -> float:
    """Rate [10⁶ bit/s] between the first and the last arrival of a burst."""
    received = first = len(_receive_some(connection, 65536))
    start_s = time.perf_counter()
    while received < size_bytes:
        received += len(_receive_some(connection, 65536))
    return (received - first) * 8 / (time.perf_counter() - start_s) / 1e6


def measure_rtt_ms(port: int, count: int) -> list[float]:
    """Round trips of one byte [ms]."""
    with socket.create_connection((_HOST, port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_ECHO)
        times_ms = []
        for _ in range(count + 1):
            start_s = time.perf_counter()
            connection.sendall(b"x")
            _receive_some(connection, 1)
            times_ms.append((time.perf_counter() - start_s) * 1000)
        return times_ms[1:]  # the first round trip includes the wait for the handshake


def measure_rate_mbps(port: int, direction: str, size_bytes: int) -> float:
    """Rate of a burst in one direction [10⁶ bit/s]."""
    with socket.create_connection((_HOST, port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if direction == "down":
            connection.sendall(_SOURCE + size_bytes.to_bytes(8))
            return _time_arrival(connection, size_bytes)
        connection.sendall(_SINK + size_bytes.to_bytes(8) + bytes(size_bytes))
        return float(json.loads(connection.makefile("rb").readline()))


def main() -> None:
    """Serve and execute commands until standard input ends, or only serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", help="only serve, on this address")
    parser.add_argument("--announce", type=Path, help="file for its endpoint")
    arguments = parser.parse_args()
    if arguments.listen:
        listener = socket.create_server((arguments.listen, 0))
        if arguments.announce:
            endpoint = f"tcp://{arguments.listen}:{listener.getsockname()[1]}"
            write_json(arguments.announce, {"endpoint": endpoint})
        serve(listener)
    execute_commands()


def execute_commands() -> None:
    """Execute the measurement commands from standard input."""
    listener = socket.create_server((_HOST, 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the protocol with the parent process
    for line in sys.stdin:
        measure, *arguments = json.loads(line)
        try:
            answer = (measure_rtt_ms if measure == "rtt" else measure_rate_mbps)(*arguments)
        except OSError as error:
            sys.exit(f"the link cannot be measured: {error}")
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
