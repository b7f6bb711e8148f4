"""Encoding of beacons, 13 bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.presence.beacons import BEACON_BYTES, Beacon, decode_beacon, encode_beacon
from nearsight.device.peers.presence.identity import NodeId


@given(st.integers(1, 2**64 - 1), st.integers(0, 65_535))
def test_a_beacon_has_13_bytes_with_node_id_and_port(node_id: int, port: int) -> None:
    beacon = Beacon(NodeId(node_id), port)
    data = encode_beacon(beacon)
    assert len(data) == BEACON_BYTES == 13
    assert decode_beacon(data) == beacon


def test_the_layout_is_fixed() -> None:
    assert encode_beacon(Beacon(NodeId(0x0102030405060708), 0x1F90)).hex() == "6e73011f900102030405060708"


def test_port_0_announces_a_departure() -> None:
    assert Beacon(NodeId(1), 0).leaving
    assert not Beacon(NodeId(1), 1).leaving


GOOD = encode_beacon(Beacon(NodeId(7), 7000))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"x",
        b"xx" + GOOD[2:],
        GOOD[:2] + b"\x02" + GOOD[3:],
        GOOD[:5] + bytes(8),
    ],
    ids=["empty", "short", "long", "magic", "version", "no node"],
)
def test_an_invalid_beacon_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_beacon(data)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_beacon_or_refused(data: bytes) -> None:
    try:
        beacon = decode_beacon(data)
    except InvalidMessage:
        return
    assert encode_beacon(beacon) == data
