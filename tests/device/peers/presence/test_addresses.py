"""Addresses of this device, and their changes."""

from __future__ import annotations

import subprocess

import pytest

from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.device.peers.presence.addresses import (
    OwnAddresses,
    broadcast_targets,
    host_and_port,
    is_loopback,
    is_own_address,
    own_endpoint,
)
from nearsight.experiments.links.namespaces import NamespaceNetwork
from support.faulty_network import FaultyNetwork
from support.namespaces import entered, on


def test_endpoints_are_parsed() -> None:
    assert host_and_port("tcp://10.0.0.1:7000") == ("10.0.0.1", 7000)
    assert host_and_port("tcp://[::1]:7000") == ("::1", 7000)
    assert host_and_port("tcp://[fe80::1%br-lan]:7000") == ("fe80::1%br-lan", 7000)
    assert host_and_port("tcp://phone-2.local:7000") == ("phone-2.local", 7000)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "10.0.0.1:7000",
        "ipc:///tmp/x",
        "tcp://10.0.0.1",
        "tcp://10.0.0.1:0",
        "tcp://10.0.0.1:70000",
        "tcp://a b:1",
        "tcp://127.0.0.1:\u0668\u0660",
        "tcp://[::1%\u00e9]:80",
    ],
)
def test_an_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidArgument):
        host_and_port(endpoint)


def test_loopback_is_recognised() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.3.2.1", "localhost", "::1"]))
    assert not any(map(is_loopback, ["10.0.0.1", "0.0.0.0", "phone.local"]))


def test_the_own_endpoint_is_the_listening_or_advertised_address() -> None:
    here = "tcp://10.0.0.1:7000"
    assert own_endpoint(here, "", "tcp://10.0.0.2:7000") == here
    assert own_endpoint(here, "tcp://example.org:1", "tcp://10.0.0.2:7000") == "tcp://example.org:1"
    for peer in ("127.0.0.1", "localhost"):
        assert own_endpoint("tcp://0.0.0.0:7000", "", f"tcp://{peer}:9") == "tcp://127.0.0.1:7000"
    with pytest.raises(Unavailable, match="no route"):
        own_endpoint("tcp://0.0.0.0:7000", "", "tcp://no..name:9")


def test_beacons_are_sent_to_the_network_of_the_server() -> None:
    assert broadcast_targets("127.0.0.1", "") == ("127.255.255.255",)
    assert broadcast_targets("10.0.0.1", "") == ("255.255.255.255",)
    assert broadcast_targets("10.0.0.1", "10.0.0.255") == ("10.0.0.255",)
    assert broadcast_targets("10.0.0.1", "off") == ()
    assert broadcast_targets("fe80::1", "") == ()
    assert broadcast_targets("::1", "") == ()


def test_own_addresses_are_recognised() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("203.0.113.7")


@pytest.mark.system
@pytest.mark.needs("namespaces")
def test_a_server_on_all_addresses_is_announced_on_each_network() -> None:
    with NamespaceNetwork(1, network="10.78.4.0/22") as network:
        node = network.nodes[0]
        assert on(node, lambda: broadcast_targets("0.0.0.0", "")) == ("10.78.7.255",)
        towards = "tcp://10.78.5.9:1"
        assert on(node, lambda: own_endpoint("tcp://0.0.0.0:7000", "", towards)) == "tcp://10.78.4.1:7000"
        with pytest.raises(Unavailable, match="no route"):
            on(node, lambda: own_endpoint("tcp://0.0.0.0:7000", "", "tcp://192.0.2.1:1"))


@pytest.mark.system
@pytest.mark.needs("namespaces")
def test_a_changed_address_is_detected_and_a_network_that_is_down_is_no_change() -> None:
    with FaultyNetwork(1) as network:
        node = network.nodes[0]
        with entered(node):
            everywhere, one = OwnAddresses("0.0.0.0"), OwnAddresses(node.address)
            found = [everywhere.changed(0.0), one.changed(0.0)]
        run = lambda *words: subprocess.run([*node.prefix, "ip", *words], check=True)  # noqa: E731
        run("link", "set", "eth0", "down")
        found.append(on(node, lambda: everywhere.changed(2.0)))
        run("link", "set", "eth0", "up")
        found.append(on(node, lambda: everywhere.changed(4.0)))
        assert not any(found)
        network.readdress(node)
        assert not on(node, lambda: everywhere.changed(4.5))  # looks once a second
        assert on(node, lambda: everywhere.changed(6.0))
        assert not on(node, lambda: everywhere.changed(8.0))
        assert not on(node, lambda: one.changed(8.0))
