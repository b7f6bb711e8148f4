"""Discovery over real datagrams, within one process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nearsight.common.clock import ManualClock
from nearsight.common.errors import AddressInUse, ConfigurationError, Unauthenticated
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.security import generate_keys
from nearsight.device.peers.presence.beacons import UDP_IP_HEADER_BYTES, Beacon, encode_beacon
from nearsight.device.peers.presence.identity import AllowedPeers, NodeId, node_id_of_key
from nearsight.device.peers.settings import PeerSettings
from support.discovery import Neighbourhood, broadcast
from support.waiting import wait_until


@pytest.fixture
def group() -> Iterator[Neighbourhood]:
    with Neighbourhood() as group:
        yield group


def test_a_join_and_a_clean_departure_are_noticed_at_once() -> None:
    with Neighbourhood(period_s=600.0, departure_s=1800.0) as group:
        first, second = group.add(1), group.add(2)
        group.wait_complete()
        group.remove(second)
        wait_until(lambda: first.changes[-1:] == [set()], what="the departure")


def test_a_device_that_dies_is_dropped() -> None:
    with Neighbourhood(departure_s=0.6) as group:
        first, second = group.add(1), group.add(2)
        group.wait_complete()
        group.remove(second, farewell=False)
        wait_until(lambda: not first.sees(), what="the departure")


def test_invalid_beacons_are_ignored_and_counted(group: Neighbourhood) -> None:
    device = group.add(1)
    for data in (b"", b"hello", bytes(13), bytes(1400), encode_beacon(Beacon(NodeId(9), 9))[:-1]):
        broadcast(data, group.port)
    wait_until(lambda: device.discovery.beacon_counts.malformed == 5)
    assert device.asked == []


def test_beacons_of_devices_without_an_allowed_key_are_ignored_and_counted(tmp_path: Path) -> None:
    keys = {name: generate_keys(tmp_path / "keys", name) for name in ("friend", "stranger")}
    allow_client(keys["friend"].public_file, tmp_path / "peers")
    friend, stranger = (node_id_of_key(keys[name].public_key) for name in ("friend", "stranger"))
    with Neighbourhood() as group:
        device = group.add(1, allowed=AllowedPeers(tmp_path / "peers"))
        broadcast(encode_beacon(Beacon(stranger, 7000)), group.port, times=3)
        broadcast(encode_beacon(Beacon(friend, 7000)), group.port)
        wait_until(lambda: len(device.asked) == 1)
        assert device.asked == [(friend, "tcp://127.0.0.1:7000")]
        assert device.discovery.beacon_counts.strangers == 3


def test_beacons_are_accepted_once_the_key_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    friend = generate_keys(tmp_path / "keys", "friend")
    beacon = encode_beacon(Beacon(node_id_of_key(friend.public_key), 7000))
    with Neighbourhood() as group:
        device = group.add(1, allowed=AllowedPeers(tmp_path / "peers"))
        broadcast(beacon, group.port)
        wait_until(lambda: device.discovery.beacon_counts.strangers == 1)
        allow_client(friend.public_file, tmp_path / "peers")
        sent = device.discovery.beacon_counts.sent
        wait_until(lambda: device.discovery.beacon_counts.sent > sent)
        broadcast(beacon, group.port)
        wait_until(lambda: len(device.asked) == 1)


def test_without_keys_beacons_of_other_machines_are_ignored(group: Neighbourhood) -> None:
    device = group.add(1, start=False)
    assert device.discovery._beacons._accepted(encode_beacon(Beacon(NodeId(2), 7000)), "10.0.0.9") is None
    assert device.discovery.beacon_counts.strangers == 1


def test_send_errors_are_counted_until_the_network_recovers(group: Neighbourhood) -> None:
    device = group.add(1, start=False)
    device.discovery._beacons._broadcast = "192.0.2.1"  # cannot be reached from a loopback address
    device.start()
    wait_until(lambda: device.discovery.beacon_counts.send_errors >= 2)
    device.discovery._beacons._broadcast = ""
    wait_until(lambda: device.discovery.beacon_counts.sent > 0)


def test_a_device_that_cannot_broadcast_logs_it(group: Neighbourhood) -> None:
    with capture_logs() as logs:
        device = group.add(1, endpoint="tcp://[::1]:7000")
    assert any("beacons need IPv4" in line["event"] for line in logs)
    assert (device.discovery.beacon_counts.sent, device.discovery.beacon_counts.send_errors) == (0, 0)


def test_beacons_are_counted_with_their_headers(group: Neighbourhood) -> None:
    first, second = group.add(1), group.add(2)
    group.wait_complete()
    wait_until(lambda: first.discovery.beacon_counts.received >= 3)
    first.discovery.stop()  # stops the counters
    second.discovery.stop()
    counts = first.discovery.beacon_counts
    assert counts.received_bytes == counts.received * (13 + UDP_IP_HEADER_BYTES)
    assert counts.sent_bytes == counts.sent * (13 + UDP_IP_HEADER_BYTES)
    assert counts.received <= second.discovery.beacon_counts.sent


def test_peers_stay_known_during_a_flood_of_datagrams(group: Neighbourhood) -> None:
    first, second = group.add(1), group.add(2)
    group.wait_complete()
    wait_until(lambda: first.changes[-1:] == [{second.own.node_id}])
    changes = len(first.changes)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            broadcast(b"noise", group.port, times=50)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        sent = first.discovery.beacon_counts.sent
        wait_until(lambda: first.discovery.beacon_counts.sent >= sent + 5)
    finally:
        stop.set()
        flooding.join()
    assert first.discovery.beacon_counts.malformed > 100
    assert first.sees() == {second.own.node_id}
    assert len(first.changes) == changes


class SuspendedClock(ManualClock):
    """A clock of a machine that can be suspended: only the wall clock advances meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._suspended_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.monotonic() + 1e9 + self._suspended_s

    def suspend(self, seconds: float) -> None:
        self._suspended_s += seconds


def test_after_a_suspension_all_peers_are_pinged_and_a_beacon_is_sent() -> None:
    with Neighbourhood(period_s=600.0, departure_s=1800.0) as group:
        clock = SuspendedClock()
        sleeper, second, third = group.add(1, clock=clock), group.add(2), group.add(3)
        group.wait_complete()
        group.devices.remove(third)  # dies silently
        sleeper.asked.clear()
        sent = sleeper.discovery.beacon_counts.sent
        clock.suspend(3600.0)
        wait_until(lambda: sleeper.slept == 1, what="detection of the suspension")
        wait_until(lambda: sleeper.sees() == {second.own.node_id})
        assert {node_id for node_id, _ in sleeper.asked} == {NodeId(2), NodeId(3)}
        assert sleeper.discovery.beacon_counts.sent == sent + 1
        assert sleeper.discovery.seconds_since(0.0) > 3600.0
        third.discovery.stop(farewell=False)


def test_a_small_change_of_the_wall_clock_is_no_suspension() -> None:
    with Neighbourhood(departure_s=60.0) as group:
        clock = SuspendedClock()
        device = group.add(1, clock=clock)
        clock.suspend(40.0)
        sent = device.discovery.beacon_counts.sent
        wait_until(lambda: device.discovery.beacon_counts.sent > sent + 1)
        assert device.slept == 0


def test_a_peer_that_never_answers_delays_no_other(group: Neighbourhood) -> None:
    mute = group.add(1, start=False)
    mute.answers = False
    first, second = group.add(2), group.add(3)
    broadcast(encode_beacon(Beacon(NodeId(1), 10_001)), group.port)
    wait_until(lambda: first.sees() == {NodeId(3)} and second.sees() == {NodeId(2)})
    wait_until(lambda: (NodeId(1), mute.endpoint) in first.asked)
    assert NodeId(1) not in first.sees()


def test_a_ping_that_cannot_be_sent_counts_as_failed(
    group: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = group.add(1, start=False)

    def refuse(node_id: NodeId | None, endpoint: str) -> None:
        raise Unauthenticated("no key")

    monkeypatch.setattr(device.discovery._pinger, "_ask", refuse)
    device.start()
    broadcast(encode_beacon(Beacon(NodeId(2), 7000)), group.port)
    wait_until(lambda: device.discovery.counts.pings_failed >= 1)
    assert device.discovery.known() == ()


def test_a_callback_that_fails_does_not_end_discovery(
    group: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = group.add(1, start=False)
    monkeypatch.setattr(device, "changes", None)  # appending to it fails
    device.start()
    group.add(2)
    wait_until(lambda: device.sees() == {NodeId(2)})
    group.add(3)
    wait_until(lambda: device.sees() == {NodeId(2), NodeId(3)})


def test_static_peers_discover_each_other_without_beacons() -> None:
    with Neighbourhood(broadcast="off") as group:
        alone = group.settings
        settings = PeerSettings.model_validate(
            {**alone.model_dump(), "static": ("tcp://127.0.0.1:10001", "tcp://127.0.0.1:10002")}
        )
        group.add(1, settings=settings)
        group.add(2, settings=settings)
        group.add(3, settings=settings)
        group.wait_complete()
        assert all(device.discovery.beacon_counts.sent == 0 for device in group.devices)


def test_a_static_peer_without_an_allowed_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    settings = PeerSettings(allowed=tmp_path / "peers", static=("phone@tcp://127.0.0.1:7000",))
    with Neighbourhood() as group, pytest.raises(ConfigurationError, match="phone"):
        group.add(1, allowed=AllowedPeers(tmp_path / "peers"), settings=settings)


def test_a_port_that_is_not_shared_is_reported(group: Neighbourhood) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("", group.port))
        device = group.add(1, start=False)
        with pytest.raises(AddressInUse, match=str(group.port)):
            device.start()
