"""An echo server for `nearsight bench rpc`, in a process of its own: ours, or raw pyzmq as the peer.

``python -m nearsight.experiments.bench.rpc_server {nearsight,raw} [KEYS]`` prints its endpoint and serves
until its standard input ends. With a folder of keys it uses CURVE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import zmq

from nearsight.common.rpc.security import ServerSecurity, read_secret_key
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import EchoService
from nearsight.common.rpc.settings import ServerSettings

SERVER_KEY = "server"
CLIENT_KEY = "client"
ALLOWED = "allowed"


def serve_nearsight(keys: Path | None) -> None:
    """Echo through the whole call path: envelope, queue, workers."""
    security = ServerSecurity(keys / f"{SERVER_KEY}.key_secret", keys / ALLOWED) if keys else None
    with RpcServer([EchoService()], tier="bench", settings=ServerSettings(), security=security) as server:
        _announce(server.endpoint)
        sys.stdin.read()


def serve_raw(keys: Path | None) -> None:
    """Echo with a blocking ROUTER and nothing else."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    if keys:
        socket.curve_server = True
        socket.curve_secretkey = read_secret_key(keys / f"{SERVER_KEY}.key_secret").secret.encode()
    socket.bind("tcp://127.0.0.1:0")
    _announce(socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())  # type: ignore[union-attr]
    while True:  # ended by a signal: a blocking socket has no other way out
        socket.send_multipart(socket.recv_multipart())


def _announce(endpoint: str) -> None:
    sys.stdout.write(endpoint + "\n")
    sys.stdout.flush()


def main() -> None:
    """Command line."""
    kind, keys = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None
    {"nearsight": serve_nearsight, "raw": serve_raw}[kind](keys)


if __name__ == "__main__":
    main()
