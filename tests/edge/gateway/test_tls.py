"""TLS: certificates that a gateway makes for itself, its addresses and their QR codes."""

import http.client
import socket
import ssl
import stat
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np
import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.metrics import DaemonMetrics
from nearsight.edge.gateway.certificates import self_signed
from nearsight.edge.gateway.cli import qr_lines
from nearsight.edge.gateway.daemon import GatewayDaemon
from nearsight.edge.gateway.settings import GatewaySettings, TlsSettings
from nearsight.edge.gateway.tokens import add_token
from support.gateway import ScriptedEdge
from support.waiting import LONG_S


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
