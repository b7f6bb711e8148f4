"""A real gateway in this process, in front of an edge whose answers a test decides."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from google.protobuf.descriptor import ServiceDescriptor
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from nearsight.common.errors import InvalidArgument
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.gateway.daemon import GatewayDaemon
from nearsight.edge.gateway.settings import GatewaySettings, LimitSettings
from nearsight.protos import catalogue_pb2 as pb
from support.endpoints import fresh_endpoint
from support.recognition_server import ScriptedRecognition, always
from support.waiting import LONG_S

CATALOGUE = "museum"
OTHER = "library"
RECOGNIZE = f"/v1/catalogues/{CATALOGUE}/recognize"
STREAM = f"/v1/catalogues/{CATALOGUE}/stream"


class _Catalogues(Service):
    descriptor: ClassVar[ServiceDescriptor] = pb.DESCRIPTOR.services_by_name["Catalogue"]

    def list_catalogues(
        self, request: pb.ListCataloguesRequest, context: CallContext
    ) -> pb.ListCataloguesResponse:
        return pb.ListCataloguesResponse(
            catalogues=[pb.CatalogueSummary(name=name) for name in (OTHER, CATALOGUE)]
        )

    def _refuse(self, request: object, context: CallContext) -> object:
        raise InvalidArgument("not in this test")

    get_object_models = list_objects = add_objects = remove_objects = remove_catalogue = _refuse


class ScriptedEdge:
    """An edge that answers as a test defines, and can be stopped and restarted at the same address.

    Attributes
    ----------
    recognition : ScriptedRecognition
        Records the requests; its ``answer`` may be replaced.
    ready : bool
        Its answer about its health.
    """

    def __init__(self) -> None:
        self.recognition = ScriptedRecognition(always("edge"))
        self.endpoint = fresh_endpoint()
        self.ready = True
        self._server: RpcServer | None = None
        self.start()

    def start(self) -> None:
        services = [self.recognition, _Catalogues(), HealthService("edge", lambda: self.ready)]
        settings = ServerSettings(listen=self.endpoint, queue_timeout_s=LONG_S)
        self._server = RpcServer(services, tier="edge", settings=settings)
        self._server.start()
        self.endpoint = self._server.endpoint

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0.1)
            self._server = None


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Code of the error."""
        return str(self.json["error"]["code"])


class Browser:
    """A client of a gateway, over real sockets."""

    def __init__(self, gateway: GatewayDaemon) -> None:
        self.gateway = gateway
        self.host = urlsplit(gateway.endpoint).netloc

    def request(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Reply:
        """Send one request on its own connection; ``content_type`` is the header Content-Type."""
        connection = http.client.HTTPConnection(self.host, timeout=LONG_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, named)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, named, answer.read())
        finally:
            connection.close()

    def get(self, path: str, /, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def recognize(self, image: bytes, /, path: str = RECOGNIZE, **headers: str) -> Reply:
        return self.request("POST", path, image, **({"content_type": "image/jpeg"} | headers))

    @contextmanager
    def stream(self, path: str = STREAM, *, token: str = "", **options: Any) -> Iterator[LiveStream]:
        """Open a stream."""
        offered = [Subprotocol("nearsight.v1"), *([Subprotocol(f"token.{token}")] if token else [])]
        with connect(f"ws://{self.host}{path}", subprotocols=offered, **options) as connection:
            yield LiveStream(connection)


class LiveStream:
    """The client's end of a stream."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, number: int, image: bytes) -> None:
        self.connection.send(number.to_bytes(4) + image)

    def read(self) -> Any:
        """The next message, decoded from JSON."""
        return json.loads(self.connection.recv(timeout=LONG_S))

    def close_code(self) -> int | None:
        """Wait until the gateway closes the stream; return its code."""
        with suppress(ConnectionClosed):
            while True:
                self.connection.recv(timeout=LONG_S)
        return self.connection.close_code


@contextmanager
def running_gateway(edge: str, metrics: DaemonMetrics | None = None, **changes: Any) -> Iterator[Browser]:
    """A gateway in front of this edge, and a client of it; ``limits`` are changes to patient ones."""
    limits = LimitSettings(**({"timeout_s": LONG_S, "body_timeout_s": LONG_S} | changes.pop("limits", {})))
    settings = GatewaySettings(edge=edge, listen="127.0.0.1:0", limits=limits, **changes)
    daemon = GatewayDaemon(settings, metrics or DaemonMetrics("gateway"))
    daemon.start()
    try:
        yield Browser(daemon)
    finally:
        daemon.stop(0.0)


@contextmanager
def raw(browser: Browser, timeout_s: float = LONG_S) -> Iterator[socket.socket]:
    """A TCP connection to the gateway."""
    address = urlsplit(browser.gateway.endpoint)
    assert address.hostname and address.port
    with socket.create_connection((address.hostname, address.port), timeout_s) as connection:
        yield connection


def head(length: int, *lines: str) -> bytes:
    """Head of a recognition request."""
    fields = ("Host: x", "Content-Type: image/jpeg", f"Content-Length: {length}", *lines)
    return "\r\n".join((f"POST {RECOGNIZE} HTTP/1.1", *fields, "", "")).encode()


def all_of(connection: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def upgrade() -> bytes:
    """The request that opens a stream."""
    fields = ("Host: x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    return "\r\n".join((f"GET {STREAM} HTTP/1.1", *fields, key, "", "")).encode()


def opens(browser: Browser) -> bool:
    """Whether a stream begins."""
    with browser.stream() as stream, suppress(ConnectionClosed):
        return bool(stream.read()["type"] == "ready")
    return False
