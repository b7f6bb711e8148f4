"""A network of namespaces on which hosts are cut off, kept apart and moved."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from pyroute2 import IPRoute

from nearsight.experiments.links.namespaces import (
    BRIDGE,
    INTERFACE,
    Namespace,
    NamespaceNetwork,
    add_address,
    add_bridge,
    index_of,
    inside,
)


class FaultyNetwork(NamespaceNetwork):
    """What networks and people do to hosts."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._free = itertools.islice(self.network.hosts(), count, None)

    def readdress(self, node: Namespace) -> Namespace:
        """Give a host another address, as a DHCP server may; what is bound to the old one is cut off."""
        moved = Namespace(node.name, str(next(self._free)), node.port)

        def change(route: IPRoute) -> None:
            interface = index_of(route, INTERFACE)
            route.flush_addr(index=interface)
            add_address(route, interface, moved.address, self.network)

        inside(node.name, change)
        return moved

    def cut(self, nodes: Iterable[Namespace]) -> None:
        """Take hosts off the network: their packets are lost, and nobody is told."""
        self._attach(nodes, "")

    def split(self, *groups: Sequence[Namespace]) -> None:
        """Let only the hosts within each group reach each other."""
        for number, group in enumerate(groups):
            self._attach(group, f"{BRIDGE}{number}")

    def mend(self) -> None:
        """All hosts reach each other again."""
        self._attach(self.nodes, BRIDGE)

    def _attach(self, nodes: Iterable[Namespace], bridge: str) -> None:
        """Lead the ports of hosts to a bridge, which is made if it is new; to none without a name."""

        def attach(route: IPRoute) -> None:
            there = route.link_lookup(ifname=bridge) if bridge else [0]
            master = there[0] if there else add_bridge(route, bridge)
            for node in nodes:
                route.link("set", index=index_of(route, node.port), master=master)

        inside(self.hub, attach)
