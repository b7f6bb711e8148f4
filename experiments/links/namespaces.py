"""Hosts on one switch, as network namespaces of this machine: each has its own address, and broadcast works.

Everything is configured over netlink (pyroute2), by a thread that enters the namespace. Only the processes on
a host need the command ``ip netns exec``. The switch is in a namespace as well, so the machine's own network
does not change. Requires root on Linux; see `unavailable_reason`.

`NamespaceNetwork` is a context manager that always removes its namespaces and interfaces at the end of its
block. The next run removes those of a run that was killed. `make_switch` and `remove_namespaces` are for
networks that outlive the process, with names that any later process can derive.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import itertools
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from nearsight.common.errors import SetupError
from nearsight.experiments.links.kernel_links import Rate, limit_rate

T = TypeVar("T")
NAMESPACES = Path("/run/netns")
"""Folder with a file for each namespace."""
INTERFACE = "eth0"
"""Name of every host's interface."""
_PREFIX = "nearsight"
_OURS = re.compile(rf"{_PREFIX}-(?P<pid>\d+)-(?P<started>\d+)-")
BRIDGE = "switch"
"""Name of the switch's interface in its namespace."""
_IPV6 = Path("/proc/net/if_inet6")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_NO_IPV6_ADDRESS = {"attrs": [["AF_INET6", {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", 1]]}]]}
_PORT_STATE = ("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE")
_FORWARDING = 3
_FORWARDING_TIMEOUT_S, _POLL_S = 5.0, 0.005
_LOOPBACK = 1
_NOT_ALLOWED = "run as root on Linux, or use nodes of kind 'process' or loopback instead"
_LEFT_OVER = "a killed command left them: `ip netns list` lists them, `ip netns delete NAME` removes one"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Namespace:
    """One host."""

    name: str
    """Name of the namespace."""
    address: str
    """IPv4 address in its only network."""
    port: str
    """Name of the switch's interface that leads to it."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that is to run on this host; the process keeps its id."""
        return ("ip", "netns", "exec", self.name)

    @property
    def hardware_address(self) -> str:
        """A locally administered hardware address, derived from the IPv4 address."""
        return "02:00:" + ipaddress.IPv4Address(self.address).packed.hex(":")


def inside(name: str, work: Callable[[IPRoute], T], *, new: bool = False) -> T:
    """Configure a namespace.

    A new thread enters the namespace, because pyroute2 would fork this process, which may have other threads.

    Parameters
    ----------
    name : str
        Name of the namespace.
    work : callable
        Receives a netlink socket of the namespace.
    new : bool
        Create the namespace first.

    Raises
    ------
    SetupError
        If this is not allowed, or the kernel refuses a setting.
    """

    def run() -> T:
        if new:
            _unshare()
            netns.attach(name, "thread-self")
        else:
            netns.setns(name, flags=0, fork=False)
        with IPRoute() as route:
            return work(route)

    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(run).result()
    except (OSError, NetlinkError) as error:
        advice = _LEFT_OVER if isinstance(error, FileExistsError) else _NOT_ALLOWED
        reason = next(iter(error.args[1:]), error)
        raise SetupError(f"cannot create network namespaces: {name}: {reason}", advice=advice) from error


def _unshare() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def index_of(route: IPRoute, interface: str) -> int:
    """The index of an interface."""
    return int(route.link_lookup(ifname=interface)[0])


def make_switch(hub: str, hosts: Sequence[Namespace], network: ipaddress.IPv4Network) -> None:
    """Create hosts on one switch, which is in the namespace ``hub``.

    Raises
    ------
    SetupError
        If namespaces cannot be created here, or some of these names exist.
    """
    _make_namespaces(hub, hosts)
    _connect_to_bridge(hub, hosts)
    _configure(hosts, network, neighbours=())
    _wait_until_forwarding(hub, len(hosts))


def _make_namespaces(hub: str, hosts: Sequence[Namespace]) -> None:
    if shutil.which("ip") is None:
        raise SetupError(
            "network namespaces need the command 'ip'", advice="on Debian: apt-get install iproute2"
        )
    for name in (hub, *(host.name for host in hosts)):
        inside(name, lambda route: route.link("set", index=_LOOPBACK, state="up"), new=True)


def _connect_to_bridge(hub: str, hosts: Sequence[Namespace]) -> None:
    """Create the interface of each host; it is not up yet."""

    def connect(route: IPRoute) -> None:
        bridge = add_bridge(route, BRIDGE)
        for host in hosts:
            peer = {"ifname": INTERFACE, "net_ns_fd": host.name, "address": host.hardware_address}
            route.link("add", ifname=host.port, kind="veth", peer=peer)
            port = index_of(route, host.port)
            _without_ipv6(route, port)
            route.link("set", index=port, master=bridge, state="up")

    inside(hub, connect)


def add_bridge(route: IPRoute, name: str) -> int:
    """Create a bridge; returns its index."""
    # No forwarding delay: a port forwards frames as soon as it is up.
    route.link("add", ifname=name, kind="bridge", br_forward_delay=0, br_mcast_snooping=0)
    bridge = index_of(route, name)
    _without_ipv6(route, bridge)
    route.link("set", index=bridge, state="up")
    return bridge


def _configure(
    hosts: Sequence[Namespace], network: ipaddress.IPv4Network, neighbours: Sequence[Namespace]
) -> None:
    """Set the addresses of hosts; each gets permanent neighbour entries for ``neighbours``."""
    for host in hosts:

        def configure(route: IPRoute, host: Namespace = host) -> None:
            interface = index_of(route, INTERFACE)
            add_address(route, interface, host.address, network)
            _without_ipv6(route, interface)
            route.link("set", index=interface, state="up")
            for other in neighbours:
                if other is not host:
                    hardware = other.hardware_address
                    route.neigh(
                        "add", dst=other.address, lladdr=hardware, ifindex=interface, state="permanent"
                    )

        inside(host.name, configure)


def add_address(route: IPRoute, interface: int, address: str, network: ipaddress.IPv4Network) -> None:
    """Add an address of a network to an interface."""
    route.addr(
        "add",
        index=interface,
        address=address,
        prefixlen=network.prefixlen,
        broadcast=str(network.broadcast_address),
    )


def _without_ipv6(route: IPRoute, interface: int) -> None:
    """Disable IPv6: it is not used here, and the kernel's router solicitations would count as traffic."""
    if _IPV6.exists():
        route.link("set", index=interface, IFLA_AF_SPEC=_NO_IPV6_ADDRESS)


def _wait_until_forwarding(hub: str, ports: int) -> None:
    """Wait until the bridge forwards on all ports, some milliseconds after they are up."""

    def wait(route: IPRoute) -> None:
        deadline_s = time.monotonic() + _FORWARDING_TIMEOUT_S
        while [one.get_nested(*_PORT_STATE) for one in route.get_links()].count(_FORWARDING) < ports:
            if time.monotonic() > deadline_s:
                raise SetupError(f"not all ports of the switch {hub} are up")
            time.sleep(_POLL_S)

    inside(hub, wait)


def remove_namespaces(names: Iterable[str]) -> None:
    """Delete namespaces and kill the processes in them; ignores names that do not exist."""
    places = set()
    for name in names:
        with contextlib.suppress(OSError):  # does not exist, or another process removes it at the same time
            places.add(_place(NAMESPACES / name))
            netns.remove(name)
    if not places:
        return
    # After the deletion, so that no further process can enter.
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            if process.name != str(os.getpid()) and _place(process / "ns/net") in places:
                os.kill(int(process.name), signal.SIGKILL)


def _place(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class NamespaceNetwork:
    """Hosts on one switch, for a ``with`` block.

    Stop the processes on the hosts before the block ends; the remaining ones are killed.

    Parameters
    ----------
    count : int
        Number of hosts.
    rate : Rate or None
        Rate of each link; None: unlimited.
    network : str
        Network from which the hosts get their addresses in order. Several networks may use the same one,
        because they are isolated from each other.

    Raises
    ------
    SetupError
        On entry, if namespaces cannot be created here.
    """

    def __init__(self, count: int, *, rate: Rate | None = None, network: str = "10.77.0.0/16") -> None:
        self.network = ipaddress.IPv4Network(network)
        run = f"{_PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"
        self.hub = f"{run}-hub"
        """Namespace of the switch."""
        self._rate = rate
        addresses = itertools.islice(self.network.hosts(), count)
        self.nodes = tuple(
            Namespace(f"{run}-{index}", str(address), f"port{index}")
            for index, address in enumerate(addresses)
        )
        """The hosts."""

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            _make_namespaces(self.hub, self.nodes)
            ports = self._connect()
            # The kernel keeps at most 1024 neighbours over all namespaces. Permanent entries do not count.
            _configure(self.nodes, self.network, neighbours=self.nodes)
            _wait_until_forwarding(self.hub, ports)
            if self._rate is not None:
                self._limit(self._rate)
        except BaseException:  # Ctrl-C as well
            self._remove()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._remove()

    def _connect(self) -> int:
        """Create the interface of each host, not up yet; returns the number of ports of the switch."""
        _connect_to_bridge(self.hub, self.nodes)
        return len(self.nodes)

    def _limit(self, rate: Rate) -> None:
        for node in self.nodes:
            for place, interface, mbps in (
                (self.hub, node.port, rate.down_mbps),
                (node.name, INTERFACE, rate.up_mbps),
            ):

                def limit(route: IPRoute, interface: str = interface, mbps: float = mbps) -> None:
                    limit_rate(route, index_of(route, interface), mbps)

                inside(place, limit)

    def _remove(self) -> None:
        remove_namespaces([self.hub, *(node.name for node in self.nodes)])


@functools.cache
def unavailable_reason() -> str:
    """Why this process cannot create namespaces; empty if it can. The result is cached."""
    try:
        with NamespaceNetwork(1, rate=Rate(10.0, 10.0)):
            return ""
    except SetupError as error:
        return error.message


def remove_leftovers() -> None:
    """Delete the namespaces of runs that no longer exist."""
    matches = [match for name in netns.listnetns() if (match := _OURS.match(name))]
    remove_namespaces(
        match.string for match in matches if _started(int(match["pid"])) != int(match["started"])
    )


def _started(pid: int) -> int:
    """Start time of a process [ticks], to distinguish it from a later one with its id; 0: no such process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return 0
    return int(after_name.split()[19])
