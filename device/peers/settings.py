"""Settings for sharing with devices nearby."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from nearsight.common.settings import SettingsGroup

MEBIBYTE = 2**20
NO_BROADCAST = "off"

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
_STATIC = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})@)?"
    r"(?P<endpoint>tcp://(?:\[[^\]]+\]|[^:\[\]/]+):(?P<port>\d{1,5}))"
)
_LISTEN = re.compile(r"tcp://(?:\[[^\]]+\]|[^:\[\]/]+):(?:\d{1,5}|\*)")


class StaticPeer(NamedTuple):
    """A peer that is pinged without broadcast, with the name of its key (empty without keys)."""

    name: str
    endpoint: str


class PeerSettings(SettingsGroup):
    """Sharing with devices nearby: presence, and the key-value store that the devices host themselves."""

    enabled: bool = False
    """Look for devices nearby, and share with them."""
    listen: str = "tcp://127.0.0.1:0"
    """Address on which peers are served. Beyond loopback it needs keys."""
    advertise: str = ""
    """Endpoint tcp://HOST:PORT under which peers reach this device. Empty: the address that its packets come
    from."""
    broadcast: str = ""
    """IPv4 address to which beacons are sent. Empty: 127.255.255.255 on loopback, else 255.255.255.255, or
    the broadcast address of each network if ``listen`` is unspecified (0.0.0.0, [::]); "off": no beacons."""
    beacon_port: int = Field(default=7400, ge=1, le=65_535)
    """UDP port of the beacons; the same on all devices."""
    period_s: Seconds = 5.0
    """Seconds between two beacons."""
    departure_s: Seconds = 15.0
    """Seconds of silence after which a peer is pinged, and dropped if it does not answer."""
    ping_timeout_s: Seconds = 0.9
    """Timeout of a ping [s]; a known peer is pinged twice before it is dropped."""
    static: tuple[str, ...] = ()
    """Peers that are pinged without broadcast: "tcp://HOST:PORT", with keys "NAME@tcp://HOST:PORT"."""
    max_peers: int = Field(default=128, ge=1, le=4096)
    """Maximum number of peers; further devices are ignored."""
    secret_key_file: _UserPath | None = None
    """Secret key of this device, from `nearsight keys`; needed with ``allowed``. None: the secret key that
    this device uses otherwise (for edge and cloud), if it has one."""
    allowed: _UserPath | None = None
    """Folder with the public key (*.key) of every device to share with. Needed to listen beyond loopback."""
    replicas: int = Field(default=2, ge=1, le=64)
    """Number of devices that hold each key."""
    memory_bytes: int = Field(default=16 * MEBIBYTE, ge=0)
    """Maximum bytes of entries that this device holds for the group."""
    max_keys: int = Field(default=20_000, ge=0)
    """Maximum number of keys that this device holds for the group."""
    value_limit_bytes: int = Field(default=MEBIBYTE, ge=1)
    """Maximum size of a single value or of an item of a list; larger ones are refused."""
    read_timeout_s: Seconds = 2.0
    """Timeout of a read [s], over all devices that are asked. A write may take twice as long, and the
    transfer time of its value."""
    hedge_s: Seconds = 0.25
    """Maximum time without an answer to a read after which the next device is asked as well [s]. Usually an
    adaptive timeout from 0.02 s on is shorter."""
    share: Literal["redirect", "direct", "off"] = "redirect"
    """How models are shared. "redirect": the store names the devices that hold them; "direct": the store
    holds the models themselves; "off": not at all."""
    adapt: bool = False
    """Learn from photos how objects look in the light of the place, and share these features. They are used
    if the object models recognise nothing, and the models must confirm their answers."""

    @model_validator(mode="after")
    def _is_consistent(self) -> PeerSettings:
        if self.broadcast not in {"", NO_BROADCAST}:
            _check_ipv4(self.broadcast)
        if _LISTEN.fullmatch(self.listen) is None:
            raise ValueError("listen must be of the form tcp://ADDRESS:PORT")
        if self.advertise and _peer_of("advertise", self.advertise).name:
            raise ValueError("advertise must be of the form tcp://HOST:PORT")
        if self.departure_s < self.period_s:
            raise ValueError(
                "departure_s must be at least period_s, otherwise every peer is pinged continuously"
            )
        if self.allowed is None and self.secret_key_file is not None:
            raise ValueError(
                "secret_key_file is set, but not allowed, the folder with the keys of other devices"
            )
        if self.allowed is None and any(peer.name for peer in self.static_peers()):
            raise ValueError(
                "static peers contain key names, but allowed, the folder with the keys, is not set"
            )
        if self.allowed is not None and not all(peer.name for peer in self.static_peers()):
            raise ValueError("with keys, write static peers as NAME@tcp://HOST:PORT")
        return self

    def with_key(self, own: str | Path | None) -> PeerSettings:
        """These settings with the device's other secret key ``own``, if they need a key and have none."""
        if self.allowed is None or self.secret_key_file is not None or own is None:
            return self
        return self.model_copy(update={"secret_key_file": Path(own)})

    def static_peers(self) -> tuple[StaticPeer, ...]:
        """The static peers, parsed.

        Raises
        ------
        ValueError
            If one of them has another form.
        """
        return tuple(_peer_of("static peer", text) for text in self.static)


def _peer_of(what: str, text: str) -> StaticPeer:
    match = _STATIC.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        raise ValueError(f"{what} {text!r} is not of the form tcp://HOST:PORT or NAME@tcp://...")
    return StaticPeer(match["name"] or "", match["endpoint"])


def _check_ipv4(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ipaddress.AddressValueError:
        raise ValueError(
            f"broadcast must be an IPv4 address such as 192.168.1.255, or {NO_BROADCAST!r}, not {address!r}"
        ) from None
