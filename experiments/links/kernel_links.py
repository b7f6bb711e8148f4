"""What the kernel does of the links between namespaces: ``netem`` delays, a token bucket keeps the rate.

On a host, what goes to another one passes a class of its own. The link's process stays in any case: it does
what the kernel cannot, counts, measures the whole, and takes its own overhead off the delay, for which the
kernel leaves it a millisecond. Jitter is always its own: netem would let packets overtake each other.

Only namespaces are shaped so: the interfaces of a lab machine are its owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nearsight.common.errors import SetupError
from nearsight.experiments.links.link import MEGABIT, LinkShape
from nearsight.experiments.testbed.inventory import Host, Inventory

NOTHING = LinkShape()
OWN_RTT_MS = 1.0
"""Of the round trip, what the link's process keeps to do."""
_FRAME_BYTES, _PAYLOAD_BYTES = 1514, 1448
"""A link's rate is that of its payload; the bucket counts TCP's, IP's and Ethernet's headers as well."""
_BURST_S = 0.004
_QUEUE_BYTES = 4 * 2**20
_QUEUE_PACKETS = 100_000
_FIRST_CLASS = 0x10

Pairs = Mapping[tuple[str, str], LinkShape]
"""What the kernel does between two hosts, by the names of the client's and the server's."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What this kernel can do.

    Attributes
    ----------
    rates, delays : bool
        It has TBF, netem.
    """

    rates: bool = False
    delays: bool = False

    def part(self, shape: LinkShape) -> LinkShape:
        """What it does of a link."""
        steady = self.delays and not shape.jitter_ms
        return LinkShape(
            rtt_ms=max(0.0, shape.rtt_ms - OWN_RTT_MS) if steady else 0.0,
            up_mbps=shape.up_mbps if self.rates else 0.0,
            down_mbps=shape.down_mbps if self.rates else 0.0,
        )


def rest_of(shape: LinkShape, kernel: LinkShape) -> LinkShape:
    """What is left of a link for its process."""
    return replace(
        shape,
        rtt_ms=shape.rtt_ms - kernel.rtt_ms,
        up_mbps=0.0 if kernel.up_mbps else shape.up_mbps,
        down_mbps=0.0 if kernel.down_mbps else shape.down_mbps,
    )


def find_kernel(run: Callable[[Sequence[str]], None]) -> Kernel:
    """Try what the kernel can do, on the loopback interface of a namespace.

    Parameters
    ----------
    run : callable
        Runs commands of ``tc`` there; raises `SetupError` if one fails.
    """
    rates = _works(run, list(commands("lo", [OneWay("127.0.0.9", 0.0, 10.0)])))
    delays = rates and _works(run, list(commands("lo", [OneWay("127.0.0.9", 1.0, 0.0)])))
    return Kernel(rates, delays)


def _works(run: Callable[[Sequence[str]], None], tried: list[str]) -> bool:
    works = True
    try:
        run(tried)
    except SetupError:
        works = False
    try:
        run(["qdisc del dev lo root"])
    except SetupError:
        return False  # nothing was added at all
    return works


@dataclass(frozen=True, slots=True)
class OneWay:
    """To another host: its address, delay [ms] and rate [10⁶ bit/s of payload]; 0: none."""

    address: str
    delay_ms: float
    rate_mbps: float


def commands(interface: str, ways: Sequence[OneWay]) -> Iterator[str]:
    """Commands of ``tc`` for an interface that has no shape yet; what goes elsewhere is not touched."""
    yield f"qdisc add dev {interface} root handle 1: htb"
    for number, way in enumerate(ways, _FIRST_CLASS):
        parent = f"1:{number:x}"
        yield f"class add dev {interface} parent 1: classid {parent} htb rate 10gbit quantum 60000"
        yield (
            f"filter add dev {interface} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {way.address}/32 flowid {parent}"
        )
        if way.rate_mbps:
            rate_mbps = way.rate_mbps * _FRAME_BYTES / _PAYLOAD_BYTES
            burst = max(2 * _FRAME_BYTES, int(rate_mbps * MEGABIT / 8 * _BURST_S))
            yield (
                f"qdisc add dev {interface} parent {parent} handle {number:x}: "
                f"tbf rate {rate_mbps * MEGABIT:.0f}bit burst {burst} limit {_QUEUE_BYTES}"
            )
            parent = f"{number:x}:1"
        if way.delay_ms:
            yield (
                f"qdisc add dev {interface} parent {parent} "
                f"netem delay {way.delay_ms * 1000:.0f}us limit {_QUEUE_PACKETS}"
            )


def pairs_of(inventory: Inventory, kernel: Kernel) -> Pairs:
    """What the kernel does between the hosts of an inventory.

    Two links between the same hosts that are not alike are left to their processes: the kernel does not tell
    one from the other.
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
    return {pair: part for pair, part in parts.items() if part != NOTHING}


def shape_hosts(
    hosts: Sequence[Host], pairs: Pairs, run: Callable[[Host, Sequence[str]], None], interface: str
) -> None:
    """Give every host the kernel's part of its links, each direction at the end that sends.

    Parameters
    ----------
    hosts : sequence of Host
        All.
    pairs : mapping
        From `pairs_of`.
    run : callable
        Runs commands of ``tc`` on a host.
    interface : str
        Of every host.
    """
    addresses = {host.name: host.address for host in hosts}
    for host in hosts:
        ways = [
            OneWay(addresses[server], part.rtt_ms / 2, part.up_mbps)
            for (client, server), part in pairs.items()
            if client == host.name
        ]
        ways += [
            OneWay(addresses[client], part.rtt_ms / 2, part.down_mbps)
            for (client, server), part in pairs.items()
            if server == host.name
        ]
        if ways:
            run(host, list(commands(interface, ways)))
