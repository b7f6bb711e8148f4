"""Presence of nodes with keys on separate hosts, under faults of the network and attacks."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.beacons import Beacon, encode_beacon
from nearsight.device.peers.presence.peer import PeerState
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.links.namespaces import Namespace
from nearsight.experiments.rig.peer_group import GroupPlan, PeerGroup
from support.namespaces import on
from support.peer_hosts import PeerHosts, endpoints, sees
from support.waiting import LONG_S, wait_until

pytestmark = [pytest.mark.system, pytest.mark.needs("namespaces")]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[PeerHosts]:
    with PeerHosts(tmp_path, 3) as hosts:
        yield hosts


def forge(host: Namespace, beacon: Beacon, port: int = 7400) -> None:
    """Broadcast a beacon with any node id from a host."""

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.bind((host.address, 0))
            sender.sendto(encode_beacon(beacon), ("255.255.255.255", port))

    on(host, send)


def ip(host: Namespace, *words: str) -> None:
    subprocess.run(["ip", "-n", host.name, *words], check=True)


def counts(node: PeerNode) -> tuple[int, int]:
    """Number of departures and of id conflicts."""
    return node._discovery.counts.gone, node._discovery.counts.conflicts


def test_two_devices_on_one_host_find_each_other_and_the_others(hosts: PeerHosts) -> None:
    hosts.start_all()
    hosts.start(hosts.network.nodes[0], hosts.keys("second"))
    hosts.wait_complete()


def test_a_node_that_listens_on_one_address_is_found(hosts: PeerHosts) -> None:
    for index, host in enumerate(hosts.network.nodes[:2]):
        hosts.start(host, hosts.keys(f"device{index}"), listen=f"tcp://{host.address}:0")
    hosts.wait_complete()


def test_a_disconnected_host_is_gone_until_it_reconnects(hosts: PeerHosts) -> None:
    first, second, lost = hosts.start_all()
    hosts.wait_complete()
    hosts.network.cut([hosts.network.nodes[2]])
    hosts.wait_complete(first, second)
    hosts.network.mend()
    hosts.wait_complete()
    assert lost.node_id in sees(first)


def test_a_host_with_a_new_address_is_the_same_peer(hosts: PeerHosts) -> None:
    first, second, moving = hosts.start_all()
    hosts.wait_complete()
    moved = hosts.network.readdress(hosts.network.nodes[2])
    for node in (first, second):
        wait_until(lambda node=node: moved.address in endpoints(node).get(moving.node_id, ""))
        assert counts(node) == (0, 0)
    hosts.wait_complete()


def test_a_device_reaches_its_peers_again_after_its_own_address_changed(hosts: PeerHosts) -> None:
    first, _, moving = hosts.start_all()
    hosts.wait_complete()
    wait_until(lambda: all(node.synchronised() for node in hosts.nodes))
    moving.store.put("before", b"1").result(LONG_S)
    hosts.network.readdress(hosts.network.nodes[2])
    discovery = moving._discovery
    pinged = discovery.counts.pings
    wait_until(lambda: discovery.counts.pings > pinged, what="pings after the change of address")
    wait_until(lambda: all(peer.state is PeerState.LIVE for peer in moving.peers()))
    moving.store.put("after", b"2").result(LONG_S)
    assert first.store.get("before").result(LONG_S) == b"1"
    assert first.store.get("after").result(LONG_S) == b"2"
    assert all(counts(node) == (0, 0) for node in hosts.nodes)


def test_two_hosts_on_two_networks_stay_peers_when_one_network_fails(hosts: PeerHosts) -> None:
    one, two = hosts.network.nodes[:2]
    ip(one, "link", "add", "wlan0", "type", "veth", "peer", "name", "wlan0", "netns", two.name)
    for host, address in ((one, "10.99.0.1/24"), (two, "10.99.0.2/24")):
        ip(host, "addr", "add", address, "dev", "wlan0")
        ip(host, "link", "set", "wlan0", "up")
    first, second = (hosts.start(host, hosts.keys(f"device{i}")) for i, host in enumerate((one, two)))
    hosts.wait_complete()
    received = first.beacon_counters.received
    wait_until(lambda: first.beacon_counters.received >= received + 4)
    discovery = first._discovery
    assert discovery.counts.moved <= 1
    used = "10.99." if "10.99." in endpoints(first)[second.node_id] else "10.77."
    ip(one, "link", "set", "wlan0" if used == "10.99." else "eth0", "down")
    discovery.call_failed(second.node_id)
    wait_until(lambda: used not in endpoints(first).get(second.node_id, used), what="the move")
    assert counts(first) == (0, 0)


def test_with_two_devices_of_one_key_the_first_stays_a_member_and_the_conflict_is_counted(
    hosts: PeerHosts,
) -> None:
    copied = hosts.keys("copied")
    watcher = hosts.start(hosts.network.nodes[0], hosts.keys("watcher"))
    first = hosts.start(hosts.network.nodes[1], copied)
    hosts.wait_complete(watcher, first)
    where = endpoints(watcher)
    second = hosts.start(hosts.network.nodes[2], copied)
    wait_until(lambda: counts(watcher)[1] >= 1, what="the watcher's conflict")
    wait_until(lambda: counts(first)[1] >= 1 and counts(second)[1] >= 1, what="the conflict of the two")
    assert endpoints(watcher) == where
    first.stop()
    wait_until(lambda: hosts.network.nodes[2].address in endpoints(watcher).get(second.node_id, ""))


def test_a_forged_beacon_does_not_redirect_connections(hosts: PeerHosts) -> None:
    first, second, _ = hosts.start_all()
    hosts.wait_complete()
    before = endpoints(first)
    # The third host announces the second node at its own server; the handshake requires the key.
    third = next(peer for peer in first.peers() if hosts.network.nodes[2].address in peer.endpoint)
    port = int(third.endpoint.rpartition(":")[2])
    received = first.beacon_counters.received
    for _ in range(5):
        forge(hosts.network.nodes[2], Beacon(second.node_id, port))
    forge(hosts.network.nodes[2], Beacon(second.node_id, 0))  # also its departure
    wait_until(lambda: first.beacon_counters.received >= received + 12)
    assert endpoints(first) == before
    assert counts(first) == (0, 0)


PERIOD_S, DEPARTURE_S = 0.4, 1.2


@pytest.fixture
def group(tmp_path: Path) -> Iterator[PeerGroup]:
    settings = PeerSettings(period_s=PERIOD_S, departure_s=DEPARTURE_S, ping_timeout_s=0.5)
    with PeerGroup(tmp_path / "group", GroupPlan(3, settings)) as group:
        group.start()
        group.wait_all_see_all(group.nodes, LONG_S)
        yield group


def test_a_stopped_process_finds_the_remaining_members_when_it_continues(group: PeerGroup) -> None:
    sleeper, second, third = group.nodes
    stopped_s = time.monotonic()
    sleeper.process.send_signal(signal.SIGSTOP)
    group.nodes.remove(sleeper)
    # Its kernel accepts connections, but the process never answers.
    group.wait_gone(sleeper.node_id, stopped_s, LONG_S)
    killed_s = group.kill(third)
    second.wait_peers(lambda live: third.node_id not in live, time.monotonic() + LONG_S, killed_s)
    woke_s = time.monotonic()
    sleeper.process.send_signal(signal.SIGCONT)
    deadline_s = woke_s + LONG_S
    sleeper.wait_peers(lambda live: live == {second.node_id}, deadline_s, woke_s)
    second.wait_peers(lambda live: live == {sleeper.node_id}, deadline_s, woke_s)
