"""The kernel's part of links: what is asked of it where it can, and that a bucket really holds a rate."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from nearsight.experiments.links.kernel_links import Kernel, OneWay, find_kernel, shape_interface
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.namespaces import inside
from nearsight.experiments.links.shaper import shaper_arguments
from nearsight.experiments.testbed.inventory import Host, Inventory, NodeSpec
from nearsight.experiments.testbed.node_network import (
    make_network,
    namespace_of,
    pairs_of,
    remove_network,
    shape_hosts,
)
from support.testbeds import own_id
from support.waiting import wait_until

FULL, RATES, NONE = Kernel(rates=True, delays=True), Kernel(rates=True), Kernel()
SHAPE = LinkShape(rtt_ms=30.0, up_mbps=10.0, down_mbps=20.0, loss_per_minute=1.0)
LINKS = [
    {"from": "box", "to": "server", "rtt_ms": 30.0, "up_mbps": 10.0},
    {"from": "phone", "to": "server", "via": "box", "rtt_ms": 3.0},
    {"from": "phone", "to": "box", "rtt_ms": 3.0},
]


class Queues:
    """A kernel that lacks some kinds of queues; remembers what it was told."""

    def __init__(self, *lacking: str) -> None:
        self._lacking = lacking
        self.told: list[dict[str, object]] = []

    def tc(self, command: str, kind: str = "", index: int = 0, **options: object) -> None:
        if command == "del":
            if not self.told:
                raise NetlinkError(2, "No such file or directory")
            self.told.clear()
        elif kind in self._lacking:
            raise NetlinkError(2, "No such file or directory")
        else:
            self.told.append({"kind": kind, **options})


@pytest.mark.parametrize(
    ("lacking", "found"), [((), FULL), (("netem",), RATES), (("tbf",), NONE), (("htb",), NONE)]
)
def test_a_kernel_is_asked_what_it_has(lacking: tuple[str, ...], found: Kernel) -> None:
    assert find_kernel(Queues(*lacking)) == found


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (FULL, LinkShape(rtt_ms=29.0, up_mbps=10.0, down_mbps=20.0)),
        (RATES, LinkShape(up_mbps=10.0, down_mbps=20.0)),
        (NONE, UNSHAPED),
    ],
)
def test_kernel_and_process_together_are_the_link(kernel: Kernel, part: LinkShape) -> None:
    assert kernel.part(SHAPE) == part
    rest = SHAPE.without(part)
    assert rest.rtt_ms + part.rtt_ms == SHAPE.rtt_ms
    assert (rest.up_mbps or part.up_mbps, rest.down_mbps or part.down_mbps) == (10.0, 20.0)
    assert rest.loss_per_minute == 1.0


def test_a_jitter_leaves_the_delay_to_the_process() -> None:
    assert FULL.part(LinkShape(rtt_ms=30.0, jitter_ms=2.0)) == UNSHAPED


def test_delay_and_rate_of_a_way_are_a_bucket_with_netem_in_it() -> None:
    queues = Queues()
    shape_interface(queues, 2, [OneWay("10.0.0.1", 0.0, 0.0), OneWay("10.0.0.2", 14.5, 10.0)])
    assert [one["kind"] for one in queues.told] == ["htb", "htb", "u32", "htb", "u32", "tbf", "netem"]
    *_, filtered, bucket, delayed = queues.told
    assert (filtered["keys"], filtered["target"]) == (["0x0a000002/0xffffffff+16"], 0x10011)
    place = {"parent": 0x10011, "handle": 0x110000, "limit": 4194304}
    assert bucket == {"kind": "tbf", "rate": "10455801bit", "burst": 5227, **place}
    assert delayed == {"kind": "netem", "parent": 0x110001, "delay": 14500, "limit": 100000}


def inventory(links: Sequence[dict[str, object]]) -> Inventory:
    nodes = {name: {"kind": "namespace"} for name in ("server", "box")}
    document = {
        "nodes": {**nodes, "phone": {"kind": "namespace", "count": 2}},
        "cloud": {"node": "server"},
        "edges": {"main": {"node": "box"}},
        "devices": {"visitors": {"node": "phone"}},
        "links": links,
    }
    return Inventory.model_validate(document)


def test_the_way_of_packets_counts_and_links_that_are_alike_are_one() -> None:
    pairs = pairs_of(inventory(LINKS), FULL)
    assert {pair: part.rtt_ms for pair, part in pairs.items()} == {
        ("box", "server"): 29.0,
        ("phone-1", "box"): 2.0,
        ("phone-2", "box"): 2.0,
    }
    assert list(pairs_of(inventory(LINKS), RATES)) == [("box", "server")]


def test_what_the_kernel_cannot_tell_apart_is_left_to_the_processes() -> None:
    unlike = [*LINKS[:2], {**LINKS[2], "rtt_ms": 4.0}]
    assert list(pairs_of(inventory(unlike), FULL)) == [("box", "server")]


@pytest.mark.system
@pytest.mark.needs("namespaces")
def test_a_bucket_of_the_kernel_holds_the_rate_of_a_real_link(tmp_path: Path) -> None:
    testbed = own_id()
    client, server = (
        Host(name=name, node=name, spec=NodeSpec(kind="namespace"), address=f"10.78.0.{number}")
        for number, name in enumerate(("client", "server"), 1)
    )
    part = LinkShape(up_mbps=20.0, down_mbps=40.0)
    try:
        make_network(testbed, [client, server])
        if not inside(namespace_of(testbed, client).name, find_kernel).rates:
            pytest.skip("this kernel has no token bucket: run `modprobe sch_tbf` as root")
        shape_hosts(testbed, [client, server], {("client", "server"): part})
        on_client, on_server = (namespace_of(testbed, host).prefix for host in (client, server))
        module = [sys.executable, "-m", "nearsight.experiments.links.probe", "--listen", server.address]
        probe, link = tmp_path / "probe.json", tmp_path / "link.json"
        with subprocess.Popen([*on_server, *module, "--announce", str(probe)]) as serving:
            try:
                wait_until(probe.exists, what="the probe")
                endpoint = json.loads(probe.read_text())["endpoint"]
                shape = LinkShape(rtt_ms=2.0, up_mbps=20.0, down_mbps=40.0)
                kernel = json.dumps({"up_mbps": 20.0, "down_mbps": 40.0})
                options = {"announce": link, "probe": endpoint, "kernel": kernel}
                shaper = shaper_arguments(endpoint, shape, seed=1, stats=tmp_path / "stats.json", **options)
                with subprocess.Popen([*on_client, sys.executable, *shaper]) as shaping:
                    try:
                        wait_until(link.exists, what="the link", timeout_s=30.0)
                    finally:
                        shaping.terminate()
            finally:
                serving.terminate()
        found = json.loads(link.read_text())["calibration"]
    finally:
        remove_network(testbed)
    # Never faster than the bucket; how much slower is up to whatever else this machine does.
    assert 0.0 < found["up_mbps"] < 21.0
    assert 0.0 < found["down_mbps"] < 42.0
    assert found["kernel"]["up_mbps"] == 20.0
