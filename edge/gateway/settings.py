"""What a person can set about the gateway: table ``[gateway]`` of ``nearsight.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field, field_validator

from nearsight.common.config.base import DaemonSettings, UserPath
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS, endpoint_here
from nearsight.common.rpc.settings import MEBIBYTE
from nearsight.common.settings import SettingsGroup


class TlsSettings(SettingsGroup):
    """Encryption. Browsers hand out the camera only to pages of https, or of this machine."""

    cert: UserPath | None = None
    """Certificate, PEM, with those of the authorities between it and the root."""
    key: UserPath | None = None
    """Its private key, PEM."""
    self_signed: bool = False
    """Make a certificate for the addresses of this machine, unless there is one that still fits."""
    folder: UserPath = Path("gateway-tls")
    """Where a certificate made here is kept."""


class LimitSettings(SettingsGroup):
    """What clients may take."""

    max_bytes: int = Field(default=8 * MEBIBYTE, ge=1024, le=20 * MEBIBYTE)
    """Longest image in one request; longer ones are refused (413) before they are read."""
    max_frame_bytes: int = Field(default=MEBIBYTE, ge=1024, le=20 * MEBIBYTE)
    """Longest frame of a stream; a longer one ends it (close code 1009)."""
    memory_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE)
    """Images of all requests that are read or wait for their answer; more requests are refused (503)."""
    rate_per_s: float = Field(default=100.0, gt=0)
    """Photos and frames of one token, or of one address where there are no tokens; a token may have a rate of
    its own. As many may come at once after a pause of a second."""
    connections_max: int = Field(default=2048, ge=8, le=100_000)
    """Connections at once; beyond it those that wait longest without a request are closed."""
    streams_max: int = Field(default=1024, ge=1, le=100_000)
    """Streams at once; one more is told to try again later (close code 1013)."""
    credits: int = Field(default=3, ge=1, le=64)
    """Frames of a stream that may be unanswered: one at the edge, one that waits, one on its way."""
    timeout_s: float = Field(default=5.0, gt=0, le=600)
    """How long the edge may take for an answer."""
    body_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """How long a client may take to send the head of a request, and again its body."""
    idle_s: float = Field(default=300.0, gt=0)
    """A stream without a frame for so long is closed."""
    ping_s: float = Field(default=20.0, gt=0)
    """How often a stream is asked whether its client is there, and how long it has to answer."""


class GatewaySettings(DaemonSettings):
    """Settings of the gateway daemon."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "edge": (DEFAULT_ENDPOINTS["edge"], "Where the edge listens."),
            "listen": ("127.0.0.1:8080", "Where browsers ask. Other machines need tokens."),
        }
    )
    listen: str = "127.0.0.1:8080"
    """Where browsers are served, address:port. Beyond this machine it needs tokens."""
    edge: str = DEFAULT_ENDPOINTS["edge"]
    """Endpoint of the edge, tcp://host:port."""
    edge_public_key: str = ""
    """Public key of the edge, or a file that holds it; needed if the edge uses encryption."""
    secret_key_file: UserPath | None = None
    """The secret key of this gateway, from `nearsight keys`; needed if the edge uses encryption."""
    client_id: str = Field(default="gateway", min_length=1, max_length=40)
    """How this gateway calls itself to the edge; its clients are named behind it."""
    tokens: UserPath | None = None
    """File with the tokens of clients, from `nearsight gateway tokens`. With it every request needs one."""
    cors_origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may ask, such as https://museum.example; "*": all."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose X-Forwarded-For is believed."""
    tls: TlsSettings = TlsSettings()
    """Encryption."""
    limits: LimitSettings = LimitSettings()
    """What clients may take."""

    @field_validator("cors_origins")
    @classmethod
    def _without_slash(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """As browsers name them."""
        return tuple(origin.rstrip("/") for origin in origins)

    def endpoint_here(self) -> str:
        """Where this machine reaches the gateway; empty if it is unknown."""
        scheme = "https" if self.tls.self_signed or self.tls.cert else "http"
        return endpoint_here(f"tcp://{self.listen}").replace("tcp://", f"{scheme}://", 1)
