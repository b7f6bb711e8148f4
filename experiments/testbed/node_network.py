"""Namespaces of a testbed, which outlive the command that created them, and the kernel's part of their links.

All names are derived from the testbed's id, so that any later command can remove the namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from pyroute2 import IPRoute, netns

from nearsight.experiments.links.kernel_links import Kernel, OneWay, detect_kernel, shape_interface
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.namespaces import (
    INTERFACE,
    Namespace,
    index_of,
    inside,
    make_switch,
    remove_namespaces,
)
from nearsight.experiments.testbed.inventory import NETWORK, Host, Inventory

Pairs = Mapping[tuple[str, str], LinkShape]
"""The kernel's part of the link between two hosts, by the names of client's and server's host."""


def _prefix(testbed_id: str) -> str:
    return f"nstb-{testbed_id}-"


def _hub(testbed_id: str) -> str:
    return f"{_prefix(testbed_id)}+hub"  # no host can have this name


def namespace_of(testbed_id: str, host: Host) -> Namespace:
    """The namespace of a host."""
    number = int(IPv4Address(host.address)) - int(NETWORK.network_address)
    return Namespace(f"{_prefix(testbed_id)}{host.name}", host.address, f"port{number}")


def make_network(testbed_id: str, hosts: Sequence[Host]) -> None:
    """Connect hosts to one switch in its own namespace; the machine's own network does not change.

    Raises
    ------
    SetupError
        If namespaces cannot be created here.
    """
    make_switch(_hub(testbed_id), [namespace_of(testbed_id, host) for host in hosts], NETWORK)


def remove_network(testbed_id: str) -> None:
    """Delete the namespaces of a testbed and all processes in them; missing namespaces are ignored."""
    remove_namespaces(name for name in netns.listnetns() if name.startswith(_prefix(testbed_id)))


def shape_links(testbed_id: str, inventory: Inventory) -> Pairs:
    """Configure the kernel's part of the links between namespaces; returns that part."""
    pairs = pairs_of(inventory, inside(_hub(testbed_id), detect_kernel))
    shape_hosts(testbed_id, [host for host in inventory.hosts() if host.spec.kind == "namespace"], pairs)
    return pairs


def pairs_of(inventory: Inventory, kernel: Kernel) -> Pairs:
    """The kernel's part of the links between the hosts of an inventory.

    If two links between the same hosts differ, their shapers do all the work, because the kernel cannot
    distinguish the two.
    """
    asked: dict[tuple[str, str], set[LinkShape]] = {}
    for link in inventory.links:
        (peer,) = inventory.hosts_of(link.via or link.target)
        for host in inventory.hosts_of(link.source):
            if host.name != peer.name and host.spec.kind == peer.spec.kind == "namespace":
                asked.setdefault((host.name, peer.name), set()).add(link.shape)
    parts = {
        (client, server): kernel.part(next(iter(shapes)))
        for (client, server), shapes in asked.items()
        if len(shapes) == 1 and (server, client) not in asked
    }
    return {pair: part for pair, part in parts.items() if part != UNSHAPED}


def shape_hosts(testbed_id: str, hosts: Sequence[Host], pairs: Pairs) -> None:
    """Configure the kernel's part of every host's links, each direction at the sending end."""
    addresses = {host.name: host.address for host in hosts}
    ways: dict[str, list[OneWay]] = {host.name: [] for host in hosts}
    for (client, server), part in pairs.items():
        ways[client].append(OneWay(addresses[server], part.rtt_ms / 2, part.up_mbps))
        ways[server].append(OneWay(addresses[client], part.rtt_ms / 2, part.down_mbps))
    for host in hosts:
        if ways[host.name]:

            def shape(route: IPRoute, own: Sequence[OneWay] = ways[host.name]) -> None:
                shape_interface(route, index_of(route, INTERFACE), own)

            inside(namespace_of(testbed_id, host).name, shape)
