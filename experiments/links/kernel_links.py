"""The kernel's part of a link between namespaces: ``netem`` for the delay, a token bucket for the rate.

On a host, packets to each other host pass a traffic class of their own. The shaper (`shaper`) is always part
of the link: it does what the kernel cannot do, counts, measures the whole link, and subtracts its own
overhead from the delay. The kernel leaves it one millisecond for that. Jitter is done by the shaper, because
netem would reorder packets.

Only namespaces are shaped in this way, because the interfaces of a lab machine must not be changed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from pyroute2 import IPRoute, protocols
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

from nearsight.experiments.links.link import MEGABIT, LinkShape

OWN_RTT_MS = 1.0
"""Part of the round trip that is left to the shaper [ms]."""
_FRAME_BYTES, _PAYLOAD_BYTES = 1514, 1448
"""Sizes for converting rates: a link's rate counts payload, the bucket also counts TCP, IP and Ethernet
headers."""
_BURST_S, _MOST_MBPS = 0.004, 10_000
"""Burst of the bucket [s], and its highest rate [10⁶ bit/s]: netlink has 32 bits for the bytes per second."""
_QUEUE_S = 0.2
"""Length of the queue of a node's link [s]; packets that would wait longer are dropped, as TCP expects."""
_QUEUE_BYTES = 4 * 2**20
_QUEUE_PACKETS = 100_000
_ROOT, _FIRST_CLASS = 0x1_0000, 0x10
_LOOPBACK = 1


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate of each node's link, as of a station at an access point."""

    up_mbps: float
    down_mbps: float
    """Rates from the node and to it [10⁶ bit/s]."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Abilities of this kernel."""

    rates: bool = False
    delays: bool = False
    """Whether it supports TBF and netem."""

    def part(self, shape: LinkShape) -> LinkShape:
        """The kernel's part of a link."""
        steady = self.delays and not shape.jitter_ms
        up_mbps, down_mbps = (
            rate if self.rates and rate <= _MOST_MBPS else 0.0 for rate in (shape.up_mbps, shape.down_mbps)
        )
        return LinkShape(max(0.0, shape.rtt_ms - OWN_RTT_MS) if steady else 0.0, 0.0, up_mbps, down_mbps)


@dataclass(frozen=True, slots=True)
class OneWay:
    """Path to another host: its address, delay [ms] and rate of the payload [10⁶ bit/s]; 0: none."""

    address: str
    delay_ms: float
    rate_mbps: float


def detect_kernel(route: IPRoute) -> Kernel:
    """Test the abilities of the kernel on the loopback interface of a namespace."""
    rates = _works(route, OneWay("127.0.0.9", 0.0, 10.0))
    delays = rates and _works(route, OneWay("127.0.0.9", 1.0, 0.0))
    return Kernel(rates, delays)


def _works(route: IPRoute, tried: OneWay) -> bool:
    works = True
    try:
        shape_interface(route, _LOOPBACK, [tried])
    except NetlinkError:
        works = False
    try:
        route.tc("del", index=_LOOPBACK, handle=_ROOT, parent=TC_H_ROOT)
    except NetlinkError:
        return False  # nothing was added
    return works


def shape_interface(route: IPRoute, interface: int, ways: Sequence[OneWay]) -> None:
    """Shape the packets that an interface sends to some addresses; other packets are not shaped.

    Parameters
    ----------
    route : IPRoute
        Netlink socket in the interface's namespace.
    interface : int
        Index of an interface without shaping.
    ways : sequence of OneWay
        At most one per address.
    """
    route.tc("add", "htb", interface, handle=_ROOT, default=0)
    for number, way in enumerate(ways, _FIRST_CLASS):
        parent = _ROOT | number
        route.tc("add-class", "htb", interface, parent=_ROOT, handle=parent, rate="10gbit", quantum=60_000)
        destination = int(ipaddress.IPv4Address(way.address))
        route.tc(
            *("add-filter", "u32", interface),
            parent=_ROOT,
            prio=1,
            protocol=protocols.ETH_P_IP,
            target=parent,
            keys=[f"0x{destination:08x}/0xffffffff+16"],
        )
        if way.rate_mbps:
            bucket = number << 16
            rate_mbps = way.rate_mbps * _FRAME_BYTES / _PAYLOAD_BYTES
            _add_bucket(route, interface, rate_mbps, parent=parent, handle=bucket, limit=_QUEUE_BYTES)
            parent = bucket | 1
        if way.delay_ms:
            delay_us = round(way.delay_ms * 1000)
            route.tc("add", "netem", interface, parent=parent, delay=delay_us, limit=_QUEUE_PACKETS)


def limit_rate(route: IPRoute, interface: int, rate_mbps: float) -> None:
    """Limit the rate of an interface, headers included."""
    queue_bytes = rate_mbps * MEGABIT / 8 * _QUEUE_S
    _add_bucket(route, interface, rate_mbps, handle=_ROOT, limit=int(queue_bytes) + _burst_bytes(rate_mbps))


def _add_bucket(route: IPRoute, interface: int, rate_mbps: float, **place: int) -> None:
    rate = f"{rate_mbps * MEGABIT:.0f}bit"
    route.tc("add", "tbf", interface, rate=rate, burst=_burst_bytes(rate_mbps), **place)


def _burst_bytes(rate_mbps: float) -> int:
    return max(2 * _FRAME_BYTES, int(rate_mbps * MEGABIT / 8 * _BURST_S))
