"""A network of namespaces whose hosts can be disconnected, separated and given other addresses."""

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
    """A network with faults."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._free = itertools.islice(self.network.hosts(), count, None)

    def readdress(self, node: Namespace) -> Namespace:
        """Give a host another address, as a DHCP server may.

        Sockets that are bound to the old address lose their connections.
        """
        moved = Namespace(node.name, str(next(self._free)), node.port)

        def change(route: IPRoute) -> None:
            interface = index_of(route, INTERFACE)
            route.flush_addr(index=interface)
            add_address(route, interface, moved.address, self.network)

        inside(node.name, change)
        return moved

    def cut(self, nodes: Iterable[Namespace]) -> None:
        """Disconnect hosts from the network; their packets are lost without an error."""
        self._attach(nodes, "")

    def split(self, *groups: Sequence[Namespace]) -> None:
        """Separate groups: only the hosts within each group reach each other."""
        for number, group in enumerate(groups):
            self._attach(group, f"{BRIDGE}{number}")

    def mend(self) -> None:
        """Reconnect all hosts."""
        self._attach(self.nodes, BRIDGE)

    def _attach(self, nodes: Iterable[Namespace], bridge: str) -> None:
        """Connect the ports of hosts to a bridge, created if missing; disconnect them without a name."""

        def attach(route: IPRoute) -> None:
            there = route.link_lookup(ifname=bridge) if bridge else [0]
            master = there[0] if there else add_bridge(route, bridge)
            for node in nodes:
                route.link("set", index=index_of(route, node.port), master=master)

        inside(self.hub, attach)
