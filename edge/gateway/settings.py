"""Settings of the gateway: table ``[gateway]`` of ``nearsight.toml``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field, field_validator

from nearsight.common.config.base import DaemonSettings, UserPath
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS, endpoint_here
from nearsight.common.rpc.settings import MEBIBYTE
from nearsight.common.settings import SettingsGroup

_ORIGIN = re.compile(
    r"(?P<scheme>[a-zA-Z][\w+.-]*)://(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(:(?P<port>\d{1,5}))?/?", re.ASCII
)
_DEFAULT_PORTS = MappingProxyType({"http": 80, "https": 443})


class TlsSettings(SettingsGroup):
    """Encryption. Browsers permit the camera only on pages with https, or from the same machine."""

    cert: UserPath | None = None
    """Certificate in PEM format, with all intermediate certificates."""
    key: UserPath | None = None
    """Private key of the certificate, PEM."""
    self_signed: bool = False
    """Create a certificate for the addresses of this machine, unless a valid one exists."""
    folder: UserPath = Path("gateway-tls")
    """Folder for that certificate."""


class LimitSettings(SettingsGroup):
    """Limits for clients."""

    max_bytes: int = Field(default=8 * MEBIBYTE, ge=1024, le=20 * MEBIBYTE)
    """Maximum size of an image in a request; larger ones are rejected (413) before they are read."""
    max_frame_bytes: int = Field(default=MEBIBYTE, ge=1024, le=20 * MEBIBYTE)
    """Maximum size of a frame of a stream; a larger one ends the stream (close code 1009)."""
    memory_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE)
    """Maximum size of all images that are read or wait for an answer; more requests are rejected (503). As
    much is allowed for unfinished frames of streams; beyond it, the streams with the largest are closed."""
    rate_per_s: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    """Photos and frames per second of a token, or of an address if there are no tokens; a token may have its
    own rate. After a pause of a second, as many may arrive at once."""
    connections_max: int = Field(default=2048, ge=8, le=100_000)
    """Maximum number of connections; beyond it, the longest idle connections are closed. Limited to three
    quarters of the descriptors that the process may open."""
    streams_max: int = Field(default=1024, ge=1, le=100_000)
    """Maximum number of streams; further ones are rejected for now (close code 1013)."""
    credits: int = Field(default=3, ge=1, le=64)
    """Unanswered frames of a stream: one at the edge, one waiting, one in transmission."""
    timeout_s: float = Field(default=5.0, gt=0, le=600)
    """Timeout of a request to the edge."""
    body_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """Time for the TLS handshake of a client, again for the headers of a request, and again for its body."""
    idle_s: float = Field(default=300.0, gt=0)
    """A stream without frames for this time is closed."""
    ping_s: float = Field(default=20.0, gt=0)
    """Interval of pings to a stream's client, and time for its reply."""


class GatewaySettings(DaemonSettings):
    """Settings of the gateway daemon."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "edge": (DEFAULT_ENDPOINTS["edge"], "Endpoint of the edge."),
            "listen": ("127.0.0.1:8080", "Address for browsers. Other machines need tokens."),
        }
    )
    listen: str = "127.0.0.1:8080"
    """Address for browsers, address:port. Access from other machines needs tokens."""
    edge: str = DEFAULT_ENDPOINTS["edge"]
    """Endpoint of the edge, tcp://host:port."""
    edge_public_key: str = ""
    """Public key of the edge, or a file with it; needed if the edge uses encryption."""
    secret_key_file: UserPath | None = None
    """The secret key of this gateway, from `nearsight keys`; needed if the edge uses encryption."""
    client_id: str = Field(default="gateway", min_length=1, max_length=40)
    """Name of this gateway in requests to the edge; the names of its clients are appended."""
    tokens: UserPath | None = None
    """File with the clients' tokens, from `nearsight gateway tokens`. If set, every request needs a token,
    except those for the page, /healthz, /readyz and /openapi.json."""
    cors_origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may send requests, such as https://museum.example; "*": all."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies whose X-Forwarded-For is trusted, such as 127.0.0.1."""
    tls: TlsSettings = TlsSettings()
    """Encryption."""
    limits: LimitSettings = LimitSettings()
    """Limits for clients."""

    @field_validator("cors_origins")
    @classmethod
    def _as_browsers_send(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_origin, origins))

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        if proxies != ("*",):
            for proxy in proxies:
                _check_proxy(proxy)
        return proxies

    def endpoint_here(self) -> str:
        """Address of the gateway for this machine; empty if it is unknown."""
        scheme = "https" if self.tls.self_signed or self.tls.cert else "http"
        return endpoint_here(f"tcp://{self.listen}").replace("tcp://", f"{scheme}://", 1)


def _origin(text: str) -> str:
    """An origin in the format of browsers: in lower case, without the default port, a path and a slash."""
    if text in {"*", "null"}:
        return text
    match = _ORIGIN.fullmatch(text)
    if match is None:
        scheme, _, rest = text.rpartition("://")
        example = f"{scheme or 'https'}://{re.split('[/?#]', rest)[0]}"
        example = example if _ORIGIN.fullmatch(example) else "https://museum.example"
        raise ValueError(f"{text!r} is not an origin such as {example}")
    scheme, host, port = match["scheme"].lower(), match["host"].lower(), match["port"]
    return f"{scheme}://{host}" + (f":{port}" if port and int(port) != _DEFAULT_PORTS.get(scheme) else "")


def _check_proxy(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        example = "127.0.0.1"
        with suppress(ValueError):
            example = str(ipaddress.ip_network(text, strict=False))
        raise ValueError(f"{text!r} is not an address or network such as {example}") from error
