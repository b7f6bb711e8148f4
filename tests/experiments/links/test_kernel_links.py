"""The kernel's part of links: what is asked of it where it can, and that a bucket really holds a rate."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.links.iproute import batch
from nearsight.experiments.links.kernel_links import (
    NOTHING,
    Kernel,
    OneWay,
    commands,
    find_kernel,
    pairs_of,
    rest_of,
    shape_hosts,
)
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.testbed.inventory import Host, Inventory, NodeSpec
from nearsight.experiments.testbed.node_network import (
    INTERFACE,
    hub_of,
    make_network,
    namespace_of,
    prefix_of,
    remove_network,
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


class Tc:
    """A kernel that lacks some kinds of queues."""

    def __init__(self, *lacking: str) -> None:
        self._lacking = lacking
        self._added = False

    def __call__(self, given: Sequence[str]) -> None:
        for command in given:
            if any(f" {kind} " in command for kind in self._lacking):
                raise SetupError("Specified qdisc kind is unknown")
            if command.startswith("qdisc del") and not self._added:
                raise SetupError("Cannot delete qdisc with handle of zero")
            self._added = not command.startswith("qdisc del")


@pytest.mark.parametrize(
    ("lacking", "found"), [((), FULL), (("netem",), RATES), (("tbf",), NONE), (("root",), NONE)]
)
def test_a_kernel_is_asked_what_it_has(lacking: tuple[str, ...], found: Kernel) -> None:
    assert find_kernel(Tc(*lacking)) == found


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (FULL, LinkShape(rtt_ms=29.0, up_mbps=10.0, down_mbps=20.0)),
        (RATES, LinkShape(up_mbps=10.0, down_mbps=20.0)),
        (NONE, NOTHING),
    ],
)
def test_kernel_and_process_together_are_the_link(kernel: Kernel, part: LinkShape) -> None:
    assert kernel.part(SHAPE) == part
    rest = rest_of(SHAPE, part)
    assert rest.rtt_ms + part.rtt_ms == SHAPE.rtt_ms
    assert (rest.up_mbps or part.up_mbps, rest.down_mbps or part.down_mbps) == (10.0, 20.0)
    assert rest.loss_per_minute == 1.0


def test_a_jitter_leaves_the_delay_to_the_process() -> None:
    assert FULL.part(LinkShape(rtt_ms=30.0, jitter_ms=2.0)) == NOTHING


def test_delay_and_rate_of_a_way_are_a_bucket_with_netem_in_it() -> None:
    assert list(commands("eth0", [OneWay("10.0.0.1", 0.0, 0.0), OneWay("10.0.0.2", 14.5, 10.0)]))[3:] == [
        "class add dev eth0 parent 1: classid 1:11 htb rate 10gbit quantum 60000",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.2/32 flowid 1:11",
        "qdisc add dev eth0 parent 1:11 handle 11: tbf rate 10455801bit burst 5227 limit 4194304",
        "qdisc add dev eth0 parent 11:1 netem delay 14500us limit 100000",
    ]


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
        if not find_kernel(lambda given: batch("tc", given, hub_of(testbed))).rates:
            pytest.skip("this kernel has no token bucket: run `modprobe sch_tbf` as root")
        shape_hosts(
            [client, server],
            {("client", "server"): part},
            lambda host, given: batch("tc", given, namespace_of(testbed, host)),
            INTERFACE,
        )
        module = [sys.executable, "-m", "nearsight.experiments.links.probe", "--listen", server.address]
        probe, link = tmp_path / "probe.json", tmp_path / "link.json"
        with subprocess.Popen([*prefix_of(testbed, server), *module, "--announce", str(probe)]) as serving:
            try:
                wait_until(probe.exists, what="the probe")
                endpoint = json.loads(probe.read_text())["endpoint"]
                shaper = [
                    sys.executable,
                    "-m",
                    "nearsight.experiments.links.shaper",
                    "--upstream",
                    endpoint,
                ]
                shaper += ["--rtt-ms", "2", "--up-mbps", "20", "--down-mbps", "40", "--announce", str(link)]
                shaper += ["--probe", endpoint, "--kernel", json.dumps({"up_mbps": 20.0, "down_mbps": 40.0})]
                with subprocess.Popen([*prefix_of(testbed, client), *shaper]) as shaping:
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
    assert 4.0 < found["up_mbps"] < 21.0
    assert 8.0 < found["down_mbps"] < 42.0
    assert found["kernel"]["up_mbps"] == 20.0
