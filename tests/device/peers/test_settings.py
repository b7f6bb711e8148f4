"""Settings of peers: defaults, parsing and validation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from nearsight.device.peers.settings import PeerSettings, StaticPeer


def test_by_default_peers_are_disabled_with_the_dissertation_s_period() -> None:
    settings = PeerSettings()
    assert not settings.enabled
    assert settings.period_s == 5.0
    assert settings.listen.startswith("tcp://127.0.0.1")


def test_static_peers_are_parsed() -> None:
    assert PeerSettings(static=("tcp://10.0.0.5:7300", "tcp://[fe80::1]:7300")).static_peers() == (
        StaticPeer(name="", endpoint="tcp://10.0.0.5:7300"),
        StaticPeer(name="", endpoint="tcp://[fe80::1]:7300"),
    )
    with_keys = PeerSettings(allowed=Path("peers"), static=("phone-2@tcp://10.0.0.5:7300",))
    assert with_keys.static_peers() == (StaticPeer(name="phone-2", endpoint="tcp://10.0.0.5:7300"),)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"departure_s": 4.0}, "departure_s must be at least"),
        ({"period_s": 0.0}, "greater than 0"),
        ({"departure_s": float("inf")}, "finite"),
        ({"beacon_port": 0}, "greater than or equal to 1"),
        ({"listen": "ipc:///tmp/peers"}, "tcp://ADDRESS:PORT"),
        ({"listen": "127.0.0.1:0"}, "tcp://ADDRESS:PORT"),
        ({"broadcast": "everywhere"}, "broadcast must be an IPv4 address"),
        ({"advertise": "10.0.0.5"}, "tcp://HOST:PORT"),
        ({"advertise": "tcp://10.0.0.5:0"}, "tcp://HOST:PORT"),
        ({"advertise": "phone@tcp://10.0.0.5:7300"}, "tcp://HOST:PORT"),
        ({"static": ("10.0.0.5:7300",)}, "not of the form"),
        ({"static": ("tcp://10.0.0.5:73000",)}, "not of the form"),
        ({"static": ("phone@tcp://10.0.0.5:7300",)}, "allowed, the folder with the keys, is not set"),
        ({"static": ("tcp://10.0.0.5:7300",), "allowed": "peers"}, "NAME@tcp"),
        ({"secret_key_file": "phone.key_secret"}, "but not allowed, the folder"),
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"beacons": 3}, "not permitted"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(
    values: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        PeerSettings.model_validate(values)


def test_broadcast_can_be_disabled() -> None:
    assert PeerSettings(broadcast="off").broadcast == "off"
