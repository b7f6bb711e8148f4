"""Services and clients for the tests of RPC."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import zmq
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.envelope import Buffer, decode_response
from nearsight.common.rpc.security import (
    ClientSecurity,
    KeyFiles,
    ServerSecurity,
    generate_keys,
    read_secret_key,
)
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext, Service
from nearsight.common.rpc.settings import ChannelSettings, ServerSettings
from nearsight.protos import echo_pb2, recognition_pb2, rpc_pb2
from support.inprocess import in_process_channel

ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"]
RECOGNITION = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]
NO_SOCKET = "inproc://test"

# Generous: a busy machine may stop threads for seconds.
SERVER_TIMES = {"queue_timeout_s": 600.0, "heartbeat_s": 600.0, "handshake_timeout_s": 600.0}
CHANNEL_TIMES = {"connect_grace_s": 60.0, "connect_timeout_s": 60.0}

EchoHandler = Callable[[echo_pb2.EchoRequest, CallContext], "echo_pb2.EchoResponse | Future[Any]"]


def give_back(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
    context.response_blobs.extend(context.blobs)
    return echo_pb2.EchoResponse(text=request.text)


class ScriptedEcho(Service):
    """An echo service whose handler a test provides."""

    descriptor: ClassVar[ServiceDescriptor] = ECHO

    def __init__(self, handler: EchoHandler = give_back) -> None:
        self.handler = handler
        self.seen: list[str] = []

    def echo(self, request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        self.seen.append(request.text)
        return self.handler(request, context)

    def echo_once(self, request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        return self.echo(request, context)


class Gate:
    """A handler that waits until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        self.entered.release()
        assert self.open.wait(60)
        return give_back(request, context)


class Answers:
    """Receives the answers to frames that a test submits."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self.all: list[rpc_pb2.ResponseHeader] = []

    def __call__(self, frames: Any) -> None:
        self.all.append(decode_response(list(frames)).header)
        self._arrived.release()

    def next(self) -> rpc_pb2.ResponseHeader:
        assert self._arrived.acquire(timeout=60), "no answer"
        return self.all[-1]


def request_frames(text: str = "", *, time_left_s: float = 600.0, **header: Any) -> list[Buffer]:
    fields: dict[str, Any] = {
        "protocol": 1,
        "request_id": 7,
        "service": ECHO.full_name,
        "method": "Echo",
        "time_left_ms": int(time_left_s * 1000),
        "message": echo_pb2.EchoRequest(text=text).SerializeToString(),
    }
    return [rpc_pb2.RequestHeader(**(fields | header)).SerializeToString()]


@contextmanager
def serving(
    *services: Service,
    clock: Clock = SYSTEM_CLOCK,
    security: ServerSecurity | None = None,
    metrics: Any = None,
    **settings: Any,
) -> Iterator[RpcServer]:
    """A running server; without a socket unless ``listen`` is given."""
    options = ServerSettings(**({"listen": NO_SOCKET} | SERVER_TIMES | settings))
    server = RpcServer(
        services, tier="test", settings=options, security=security, clock=clock, metrics=metrics
    )
    server.start()
    try:
        yield server
    finally:
        server.stop(grace_s=0.0)


@contextmanager
def echo_stub(server: RpcServer, **settings: Any) -> Iterator[Stub]:
    """A stub for a server; without sockets if the server has none."""
    if not server.endpoint.startswith("inproc://"):
        with echo_stub_to(server.endpoint, **settings) as stub:
            yield stub
        return
    options = ChannelSettings(**(CHANNEL_TIMES | settings))
    with in_process_channel(server, client_id="test", settings=options) as channel:
        yield Stub(channel, ECHO)


@contextmanager
def echo_stub_to(endpoint: str, security: ClientSecurity | None = None, **settings: Any) -> Iterator[Stub]:
    """A stub over ZeroMQ."""
    options = ChannelSettings(**(CHANNEL_TIMES | settings))
    with Channel(endpoint, client_id="test", settings=options, security=security) as channel:
        yield Stub(channel, ECHO)


def unused_endpoint() -> str:
    """A TCP address at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def text(value: str = "") -> echo_pb2.EchoRequest:
    return echo_pb2.EchoRequest(text=value)


class Keys:
    """A server's identity, and those of the clients that it allows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allowed = folder / "allowed"
        self.server_files = generate_keys(folder, "server")
        self.server = ServerSecurity(self.server_files.secret_file, self.allowed)
        self.phone_files = self.add("phone")

    def add(self, name: str, **rights: Any) -> KeyFiles:
        files = generate_keys(self.folder, name)
        allow_client(files.public_file, self.allowed, **rights)
        return files

    def of(self, name: str) -> ClientSecurity:
        return ClientSecurity(self.folder / f"{name}.key_secret", self.server_files.public_file)

    def give_to(self, socket: zmq.Socket[bytes], name: str = "phone") -> None:
        """Let a plain ZeroMQ socket connect with the key of this client."""
        own = read_secret_key(self.folder / f"{name}.key_secret")
        socket.curve_publickey, socket.curve_secretkey = own.public.encode(), own.secret.encode()
        socket.curve_serverkey = self.server_files.public_key.encode()
