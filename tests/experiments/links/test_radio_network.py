"""Namespaces that share one wireless access point."""

import socket
from collections.abc import Iterator

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.links.namespaces import NAMESPACES, Namespace
from nearsight.experiments.links.radio import RadioSettings
from nearsight.experiments.links.radio_network import RadioNetwork
from support.namespaces import on
from support.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.needs("namespaces", "tap")]


@pytest.fixture
def network() -> Iterator[RadioNetwork]:
    with RadioNetwork(3, RadioSettings(error_rate=0.0)) as network:
        yield network


def bound(node: Namespace) -> socket.socket:
    opened = on(node, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    opened.bind(("", 7400))
    opened.settimeout(100.0)
    return opened


def test_frames_reach_their_receiver_and_broadcasts_all_other_hosts(network: RadioNetwork) -> None:
    with bound(network.nodes[0]) as a, bound(network.nodes[1]) as b, bound(network.nodes[2]) as c:
        a.sendto(b"to b", (network.nodes[1].address, 7400))
        assert b.recvfrom(100) == (b"to b", (network.nodes[0].address, 7400))
        a.sendto(b"to all", ("10.77.255.255", 7400))
        assert b.recv(100) == c.recv(100) == b"to all"
        assert network.report()["sent"] == 2


def test_the_share_of_lost_frames_can_be_changed(network: RadioNetwork) -> None:
    with bound(network.nodes[0]) as a, bound(network.nodes[1]) as b:
        network.set_loss(1.0)
        a.sendto(b"lost", (network.nodes[1].address, 7400))
        wait_until(lambda: network.report()["lost"] == 1)
        network.set_loss(0.0)
        a.sendto(b"arrives", (network.nodes[1].address, 7400))
        assert b.recv(100) == b"arrives"


def test_a_stopped_network_leaves_no_namespaces(network: RadioNetwork) -> None:
    files = [NAMESPACES / node.name for node in network.nodes]
    network.__exit__(None, None, None)
    assert not any(file.exists() for file in files)
    with pytest.raises(SetupError, match="not running"):
        network.report()
