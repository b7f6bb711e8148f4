"""TLS: certificates that a gateway makes for itself, its addresses and their QR codes."""

import http.client
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import cv2
import numpy as np
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from nearsight.common.errors import ConfigurationError
from nearsight.common.metrics import DaemonMetrics
from nearsight.edge.gateway import certificates
from nearsight.edge.gateway.certificates import address_here, self_signed
from nearsight.edge.gateway.cli import qr_lines
from nearsight.edge.gateway.daemon import GatewayDaemon
from nearsight.edge.gateway.settings import GatewaySettings, TlsSettings
from nearsight.edge.gateway.tokens import add_token
from nearsight.experiments.links.namespaces import NamespaceNetwork
from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.gateway import ScriptedEdge, head, running_gateway
from support.namespaces import on
from support.recognition_server import response
from support.waiting import LONG_S

A = TypeVar("A")
IMAGE = b"an image"


class TlsClient:
    """A client that can end its side of TLS, and then read."""

    def __init__(self, connection: socket.socket, trust: ssl.SSLContext) -> None:
        self._connection = connection
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._received, self._sent, server_hostname="127.0.0.1")
        self._exchange(self._tls.do_handshake)

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Send data; after the last data, end this side (close_notify) in the same packet."""
        if data:
            self._tls.write(data)
        if last:
            with pytest.raises(ssl.SSLWantReadError):  # the gateway has not ended its side
                self._tls.unwrap()
        self._connection.sendall(self._sent.read())

    def read_all(self) -> bytes:
        """Read until the gateway ends its side."""
        received = b""
        with pytest.raises(ssl.SSLZeroReturnError):
            while True:
                received += self._exchange(lambda: self._tls.read(65536))
        return received

    def _exchange(self, step: Callable[[], A]) -> A:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._connection.sendall(self._sent.read())
                self._received.write(self._connection.recv(65536))


@contextmanager
def tls_client(folder: Path, edge: ScriptedEdge, version: ssl.TLSVersion) -> Iterator[TlsClient]:
    tls = TlsSettings(self_signed=True, folder=folder)
    daemon = GatewayDaemon(
        GatewaySettings(edge=edge.endpoint, listen="127.0.0.1:0", tls=tls), DaemonMetrics("gateway")
    )
    daemon.start()
    try:
        address = urlsplit(daemon.endpoint)
        trust = ssl.create_default_context(cafile=str(folder / "cert.pem"))
        trust.maximum_version = version
        with socket.create_connection((address.hostname, address.port or 0), LONG_S) as connection:
            yield TlsClient(connection, trust)
    finally:
        daemon.stop(1.0)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_certificate_is_kept_while_it_fits(tmp_path: Path) -> None:
    files = self_signed(tmp_path / "tls", "127.0.0.1")
    before = files.cert.read_bytes()
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert self_signed(tmp_path / "tls", "127.0.0.1").cert.read_bytes() == before
    self_signed(tmp_path / "tls", "192.0.2.77")
    assert files.cert.read_bytes() != before
    files.cert.write_text("damaged")
    self_signed(tmp_path / "tls", "127.0.0.1")
    assert files.cert.read_bytes().startswith(b"-----BEGIN CERTIFICATE")


@contextmanager
def clock_of_certificates(days: float) -> Iterator[None]:
    """The clock of the machine differs by some days while a certificate is made."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=days)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(certificates, "datetime", Shifted)
        yield


@pytest.mark.parametrize("key", [b"", b"of another certificate"])
def test_a_certificate_without_its_key_is_replaced(tmp_path: Path, key: bytes) -> None:
    files = self_signed(tmp_path / "tls", "127.0.0.1")
    files.key.write_bytes(self_signed(tmp_path / "other", "127.0.0.1").key.read_bytes() if key else b"")
    files = self_signed(tmp_path / "tls", "127.0.0.1")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key)


@pytest.mark.parametrize("days", [400, 3650, -380])
def test_a_certificate_that_is_not_valid_today_is_replaced(tmp_path: Path, days: float) -> None:
    with clock_of_certificates(days):
        before = self_signed(tmp_path, "127.0.0.1").cert.read_bytes()
    assert self_signed(tmp_path, "127.0.0.1").cert.read_bytes() != before


def test_names_beyond_ascii_are_in_the_certificate_as_browsers_spell_them(tmp_path: Path) -> None:
    self_signed(tmp_path, "müseum")
    text = x509.load_pem_x509_certificate((tmp_path / "cert.pem").read_bytes())
    names = text.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "xn--mseum-kva" in names.get_values_for_type(x509.DNSName)
    with pytest.raises(ConfigurationError, match="not the name of a host"):
        self_signed(tmp_path, "ü..x")


@pytest.mark.parametrize(("days", "warnings"), [(0, 0), (-500, 1), (500, 1)])
def test_an_own_certificate_that_is_not_valid_today_is_a_warning(
    tmp_path: Path, days: float, warnings: int
) -> None:
    with clock_of_certificates(days):
        cert, key = self_signed(tmp_path, "127.0.0.1")
    with capture_logs() as logs, running_gateway("tcp://127.0.0.1:1", tls=TlsSettings(cert=cert, key=key)):
        pass
    assert sum("not valid today" in line["event"] for line in logs) == warnings


def test_a_self_signed_gateway_serves_clients_that_trust_its_certificate(
    tmp_path: Path, edge: ScriptedEdge
) -> None:
    tls = TlsSettings(self_signed=True, folder=tmp_path)
    settings = GatewaySettings(edge=edge.endpoint, listen="127.0.0.1:0", tls=tls)
    daemon = GatewayDaemon(settings, DaemonMetrics("gateway"))
    daemon.start()
    try:
        address = urlsplit(daemon.endpoint)
        assert address.scheme == "https"
        trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        for host in ("127.0.0.1", "localhost"):
            connection = http.client.HTTPSConnection(host, address.port, context=trust, timeout=LONG_S)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        daemon.stop(1.0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("photos", [1, 3])
def test_a_client_that_ends_its_side_with_its_last_request_receives_its_answers(
    tmp_path: Path, edge: ScriptedEdge, version: ssl.TLSVersion, photos: int
) -> None:
    with tls_client(tmp_path, edge, version) as client:
        client.send((head(len(IMAGE)) + IMAGE) * photos, last=True)
        assert client.read_all().count(b"HTTP/1.1 200 ") == photos


def test_a_client_that_ends_its_side_while_it_waits_receives_its_answer(
    tmp_path: Path, edge: ScriptedEdge
) -> None:
    answer: Future[RecognizeResponse] = Future()
    edge.recognition.answer = lambda: answer
    with tls_client(tmp_path, edge, ssl.TLSVersion.TLSv1_3) as client:
        client.send(head(len(IMAGE)) + IMAGE)
        assert edge.recognition.asked.acquire(timeout=LONG_S)
        client.send(b"", last=True)
        answer.set_result(response("edge"))
        assert client.read_all().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", head(1000) + b"half"])
def test_a_client_that_ends_its_side_without_a_whole_request_is_disconnected(
    tmp_path: Path, edge: ScriptedEdge, sent: bytes
) -> None:
    with tls_client(tmp_path, edge, ssl.TLSVersion.TLSv1_3) as client:
        client.send(sent, last=True)
        assert client.read_all() == b""
    assert not edge.recognition.contexts


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_address_for_other_machines_is_shown_once_it_is_served(
    tmp_path: Path, edge: ScriptedEdge, host: str
) -> None:
    if host == "::" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    add_token(tmp_path / "tokens.json", "visitors")
    shown: list[str] = []
    settings = GatewaySettings(
        edge=edge.endpoint,
        listen="[::]:0" if host == "::" else f"{host}:0",
        tokens=tmp_path / "tokens.json",
        tls=TlsSettings(self_signed=True, folder=tmp_path),
    )
    daemon = GatewayDaemon(settings, DaemonMetrics("gateway"), shown.extend)
    daemon.start()
    try:
        port = urlsplit(daemon.endpoint).port
        (address,) = (urlsplit(url).hostname for url in shown)
        assert shown == [f"https://{f'[{address}]' if host == '::' else address}:{port}/"]
        socket.create_connection((address, port), 20).close()
    finally:
        daemon.stop(1.0)


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (TlsSettings(cert=Path("cert.pem")), "go together"),
        (TlsSettings(cert=Path("cert.pem"), key=Path("key.pem"), self_signed=True), "exclude"),
    ],
)
def test_settings_of_tls_that_cannot_work_are_refused(tls: TlsSettings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GatewayDaemon(GatewaySettings(listen="127.0.0.1:0", tls=tls), DaemonMetrics("gateway"))


def test_an_unusable_certificate_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    tls = TlsSettings(cert=tmp_path / "cert.pem", key=tmp_path / "cert.pem")
    daemon = GatewayDaemon(GatewaySettings(listen="127.0.0.1:0", tls=tls), DaemonMetrics("gateway"))
    with pytest.raises(ConfigurationError, match="certificate cannot be used"):
        daemon.start()


def test_a_port_in_use_is_a_startup_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = GatewayDaemon(GatewaySettings(listen=listen), DaemonMetrics("gateway"))
        with pytest.raises(Exception, match="is in use"):
            daemon.start()


def test_the_qr_code_holds_the_address() -> None:
    url = "https://192.168.1.20:8443/?catalogue=museum#token=abcdefghijklmnopqrstuvwxyz012345"
    # A full block is two light modules, one above the other.
    rows = []
    for line in qr_lines(url):
        rows.append([255 * (char in "\u2588\u2580") for char in line])
        rows.append([255 * (char in "\u2588\u2584") for char in line])
    picture = np.kron(np.array(rows, np.uint8), np.ones((8, 8), np.uint8))
    assert cv2.QRCodeDetector().detectAndDecode(picture)[0] == url


@pytest.mark.system
@pytest.mark.needs("namespaces")
def test_a_gateway_on_a_network_without_a_route_to_others_is_reached_at_its_address() -> None:
    with NamespaceNetwork(1, network="10.78.8.0/24") as network:
        assert on(network.nodes[0], lambda: address_here("0.0.0.0")) == "10.78.8.1"
