"""The kernel's part of links: which queues the kernel has, and the commands that shape an interface."""

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from nearsight.experiments.links.kernel_links import Kernel, OneWay, detect_kernel, shape_interface
from nearsight.experiments.links.link import UNSHAPED, LinkShape

FULL, RATES, NONE = Kernel(rates=True, delays=True), Kernel(rates=True), Kernel()
SHAPE = LinkShape(rtt_ms=30.0, up_mbps=10.0, down_mbps=20.0, loss_per_minute=1.0)


class Queues:
    """A kernel without some kinds of queues; records the commands."""

    def __init__(self, *lacking: str) -> None:
        self._lacking = lacking
        self.commands: list[dict[str, object]] = []

    def tc(self, command: str, kind: str = "", index: int = 0, **options: object) -> None:
        if command == "del":
            if not self.commands:
                raise NetlinkError(2, "No such file or directory")
            self.commands.clear()
        elif kind in self._lacking:
            raise NetlinkError(2, "No such file or directory")
        else:
            self.commands.append({"kind": kind, **options})


@pytest.mark.parametrize(
    ("lacking", "found"), [((), FULL), (("netem",), RATES), (("tbf",), NONE), (("htb",), NONE)]
)
def test_the_queues_of_the_kernel_are_detected(lacking: tuple[str, ...], found: Kernel) -> None:
    assert detect_kernel(Queues(*lacking)) == found


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (FULL, LinkShape(rtt_ms=29.0, up_mbps=10.0, down_mbps=20.0)),
        (RATES, LinkShape(up_mbps=10.0, down_mbps=20.0)),
        (NONE, UNSHAPED),
    ],
)
def test_the_parts_of_kernel_and_process_add_up_to_the_link(kernel: Kernel, part: LinkShape) -> None:
    assert kernel.part(SHAPE) == part
    rest = SHAPE.without(part)
    assert rest.rtt_ms + part.rtt_ms == SHAPE.rtt_ms
    assert (rest.up_mbps or part.up_mbps, rest.down_mbps or part.down_mbps) == (10.0, 20.0)
    assert rest.loss_per_minute == 1.0


def test_with_jitter_the_process_delays() -> None:
    assert FULL.part(LinkShape(rtt_ms=30.0, jitter_ms=2.0)) == UNSHAPED


def test_the_process_limits_rates_that_the_kernel_cannot_represent() -> None:
    assert FULL.part(LinkShape(up_mbps=40_000.0, down_mbps=10.0)) == LinkShape(down_mbps=10.0)


def test_delay_and_rate_of_a_direction_are_netem_in_a_token_bucket() -> None:
    queues = Queues()
    shape_interface(queues, 2, [OneWay("10.0.0.1", 0.0, 0.0), OneWay("10.0.0.2", 14.5, 10.0)])
    assert [one["kind"] for one in queues.commands] == ["htb", "htb", "u32", "htb", "u32", "tbf", "netem"]
    *_, filtered, bucket, delayed = queues.commands
    assert (filtered["keys"], filtered["target"]) == (["0x0a000002/0xffffffff+16"], 0x10011)
    place = {"parent": 0x10011, "handle": 0x110000, "limit": 4194304}
    assert bucket == {"kind": "tbf", "rate": "10455801bit", "burst": 5227, **place}
    assert delayed == {"kind": "netem", "parent": 0x110001, "delay": 14500, "limit": 100000}
