"""Hosts on one switch, as network namespaces of this machine: each has its own address, and broadcast works.

`NamespaceNetwork` is a context manager. However its block ends, its namespaces are gone afterwards, and with
them all their interfaces; a run that was killed outright is cleaned up by the next one. The switch is in a
namespace as well: the machine's own network does not change at all. Linux as root only; see
`namespaces_allowed`.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from nearsight.common.errors import SetupError
from nearsight.experiments.links.iproute import NAMESPACES, batch, delete_namespaces, ip

_PREFIX = "nearsight"
_OURS = re.compile(rf"{_PREFIX}-(?P<pid>\d+)-(?P<started>\d+)-")
INTERFACE = "eth0"
_BRIDGE = "switch"
_IPV6 = Path("/proc/net/if_inet6")
_MTU_BYTES = 1514
_BURST_S = 0.004
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast each node's link is, as with the station of an access point.

    Parameters
    ----------
    up_mbps, down_mbps : float
        From the node and to it, in 10⁶ bit/s.
    queue_ms : float
        Longest time that a packet waits to be sent; what comes then is lost, as TCP expects it.
    """

    up_mbps: float
    down_mbps: float
    queue_ms: float = 200.0


@dataclass(frozen=True, slots=True)
class Namespace:
    """One host.

    Parameters
    ----------
    name : str
        Of the namespace.
    address : str
        IPv4 address of its only network.
    port : str
        Name of the switch's interface that leads to it.
    """

    name: str
    address: str
    port: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that is to run on this host; the process keeps its id."""
        return ("ip", "netns", "exec", self.name)

    @property
    def file(self) -> Path:
        """What ``setns`` takes."""
        return NAMESPACES / self.name


class NamespaceNetwork:
    """Hosts on one switch, for a ``with`` block.

    Stop the processes on them before the block ends: those that are left are killed.

    Parameters
    ----------
    count : int
        How many hosts.
    rate : Rate or None
        Of each link; None: as fast as the machine.
    network : str
        Their addresses are taken from it in order. Different networks may have the same: they never meet.

    Attributes
    ----------
    nodes : tuple of Namespace
        The hosts.

    Raises
    ------
    SetupError
        On entry, if namespaces cannot be made here.
    """

    def __init__(self, count: int, *, rate: Rate | None = None, network: str = "10.77.0.0/16") -> None:
        self._network = ipaddress.IPv4Network(network)
        run = f"{_PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"
        self._hub = f"{run}-hub"
        self._rate = rate
        self._free = self._network.hosts()
        self.nodes = tuple(
            Namespace(f"{run}-{index}", str(next(self._free)), f"port{index}") for index in range(count)
        )

    def __enter__(self) -> NamespaceNetwork:
        remove_leftovers()
        try:
            self._build()
        except BaseException:  # Ctrl-C as well
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def readdress(self, node: Namespace) -> Namespace:
        """Give a host another address, as a DHCP server may; what is bound to the old one is cut off."""
        address = str(next(self._free))
        ip(
            [
                f"addr flush dev {INTERFACE}",
                f"addr add {address}/{self._network.prefixlen} dev {INTERFACE}",
            ],
            inside=node.name,
        )
        return Namespace(node.name, address, node.port)

    def cut(self, nodes: Iterable[Namespace]) -> None:
        """Take hosts off the network: their packets are lost, and nobody is told."""
        self._switch([f"link set {node.port} nomaster" for node in nodes])

    def split(self, *groups: Sequence[Namespace]) -> None:
        """Let only the hosts within each group reach each other."""
        for index, group in enumerate(groups):
            bridge = f"{_BRIDGE}{index}"
            with contextlib.suppress(SetupError):  # it is there from the last time
                self._switch(_bridge_commands(bridge))
            self._switch([f"link set {node.port} master {bridge}" for node in group])

    def mend(self) -> None:
        """All hosts reach each other again."""
        self._switch([f"link set {node.port} master {_BRIDGE}" for node in self.nodes])

    def _switch(self, commands: Sequence[str]) -> None:
        ip(commands, inside=self._hub)

    def _build(self) -> None:
        ip([f"netns add {name}" for name in (self._hub, *(node.name for node in self.nodes))])
        self._connect()
        for node in self.nodes:
            address = f"{node.address}/{self._network.prefixlen}"
            # The kernel keeps 1024 neighbours, over all namespaces; those that never expire do not count.
            neighbours = [
                f"neigh add {other.address} lladdr {hardware_address(other)} dev {INTERFACE} nud permanent"
                for other in self.nodes
                if other is not node
            ]
            ip(
                [
                    f"addr add {address} dev {INTERFACE}",
                    *_without_ipv6(INTERFACE),
                    f"link set {INTERFACE} up",
                    "link set lo up",
                    *neighbours,
                ],
                inside=node.name,
            )
        if self._rate is not None:
            self._shape(self._rate)

    def _connect(self) -> None:
        """Give each host its interface, which is not up yet."""
        self._switch(_bridge_commands(_BRIDGE))
        self._switch(
            [
                command
                for node in self.nodes
                for command in (
                    f"link add {node.port} type veth peer name {INTERFACE} address {hardware_address(node)} "
                    f"netns {node.name}",
                    *_without_ipv6(node.port),
                    f"link set {node.port} master {_BRIDGE} up",
                )
            ]
        )

    def _shape(self, rate: Rate) -> None:
        batch("tc", [_limit(node.port, rate.down_mbps, rate.queue_ms) for node in self.nodes], self._hub)
        for node in self.nodes:
            batch("tc", [_limit(INTERFACE, rate.up_mbps, rate.queue_ms)], inside=node.name)

    def _remove(self) -> None:
        delete_namespaces([self._hub, *(node.name for node in self.nodes)])


def namespaces_allowed() -> bool:
    """Whether this machine lets this process make networks of namespaces. Asked once."""
    return not why_not()


@functools.cache
def why_not() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    try:
        with NamespaceNetwork(1, rate=Rate(10.0, 10.0)):
            return ""
    except SetupError as error:
        return error.message


def remove_leftovers() -> None:
    """Delete the namespaces of runs that no longer exist."""
    if not NAMESPACES.is_dir():
        return
    dead = []
    for path in NAMESPACES.iterdir():
        match = _OURS.match(path.name)
        if match and _started(int(match["pid"])) != int(match["started"]):
            dead.append(path.name)
    delete_namespaces(dead)


def _started(pid: int) -> int:
    """When a process started, in ticks of the kernel: tells it from a later one with the same id; 0: none."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return 0
    return int(after_name.split()[19])


def hardware_address(node: Namespace) -> str:
    """A hardware address that nobody sells, from the node's first address."""
    parts = ipaddress.IPv4Address(node.address).packed
    return "02:00:" + ":".join(f"{part:02x}" for part in parts)


def _bridge_commands(name: str) -> list[str]:
    # Without forwarding delay: a port that comes up serves at once.
    return [
        f"link add {name} type bridge forward_delay 0 mcast_snooping 0",
        *_without_ipv6(name),
        f"link set {name} up",
    ]


def _without_ipv6(interface: str) -> list[str]:
    """Nobody uses it here, and what the kernel sends to find an IPv6 router would be counted as traffic."""
    return [f"link set {interface} addrgenmode none"] if _IPV6.exists() else []


def _limit(interface: str, mbps: float, queue_ms: float) -> str:
    burst_bytes = max(2 * _MTU_BYTES, int(mbps * 1e6 / 8 * _BURST_S))
    return f"qdisc add dev {interface} root tbf rate {mbps:g}mbit burst {burst_bytes} latency {queue_ms:g}ms"
