"""The network of a testbed's namespaces, which its id is enough to remove, and the kernel's part of links."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.links.kernel_links import Kernel, detect_kernel
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.namespaces import inside
from nearsight.experiments.links.shaper import ShaperSettings
from nearsight.experiments.testbed.inventory import Host, Inventory, NodeSpec
from nearsight.experiments.testbed.node_network import (
    make_network,
    namespace_of,
    pairs_of,
    remove_network,
    shape_hosts,
)
from support.testbeds import left_of, own_id
from support.waiting import wait_until

FULL, RATES = Kernel(rates=True, delays=True), Kernel(rates=True)
LINKS = [
    {"from": "box", "to": "server", "rtt_ms": 30.0, "up_mbps": 10.0},
    {"from": "phone", "to": "server", "via": "box", "rtt_ms": 3.0},
    {"from": "phone", "to": "box", "rtt_ms": 3.0},
]
namespaces = pytest.mark.needs("namespaces")


@pytest.fixture
def testbed() -> str:
    return own_id()


@pytest.fixture
def hosts(testbed: str) -> Iterator[list[Host]]:
    found = [
        Host(name=f"phone-{n}", node="phone", spec=NodeSpec(kind="namespace"), address=f"10.78.0.{n}")
        for n in (1, 2)
    ]
    try:
        make_network(testbed, found)
        yield found
    finally:
        remove_network(testbed)


@namespaces
@pytest.mark.system
def test_namespaces_of_a_killed_run_are_removed_by_the_next_run(hosts: list[Host]) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = f"test{dead.pid}"
    make_network(left, hosts)
    own_id()
    assert left_of(left) == []


@namespaces
@pytest.mark.system
def test_removal_ends_the_processes_in_the_namespaces_and_can_be_repeated(
    testbed: str, hosts: list[Host]
) -> None:
    waits = "import signal; print('in', flush=True); signal.pause()"
    with subprocess.Popen(
        [*namespace_of(testbed, hosts[0]).prefix, sys.executable, "-S", "-c", waits],
        stdout=subprocess.PIPE,
        text=True,
    ) as inside:
        assert inside.stdout is not None
        assert inside.stdout.readline() == "in\n"
        remove_network(testbed)
        assert inside.wait(100) != 0
    assert left_of(testbed) == []
    remove_network(testbed)


@namespaces
@pytest.mark.system
def test_existing_namespaces_of_the_same_name_are_an_error_with_the_command_that_removes_them(
    testbed: str, hosts: list[Host]
) -> None:
    with pytest.raises(SetupError, match=rf"nstb-{testbed}.*File exists") as caught:
        make_network(testbed, hosts)
    assert "ip netns delete" in caught.value.advice


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


def test_the_kernel_shapes_each_path_of_packets_once() -> None:
    pairs = pairs_of(inventory(LINKS), FULL)
    assert {pair: part.rtt_ms for pair, part in pairs.items()} == {
        ("box", "server"): 29.0,
        ("phone-1", "box"): 2.0,
        ("phone-2", "box"): 2.0,
    }
    assert list(pairs_of(inventory(LINKS), RATES)) == [("box", "server")]


def test_different_links_over_one_path_are_shaped_by_processes() -> None:
    unlike = [*LINKS[:2], {**LINKS[2], "rtt_ms": 4.0}]
    assert list(pairs_of(inventory(unlike), FULL)) == [("box", "server")]


@pytest.mark.system
@pytest.mark.needs("namespaces")
def test_the_token_bucket_of_the_kernel_limits_the_rate_of_a_real_link(tmp_path: Path) -> None:
    testbed = own_id()
    client, server = (
        Host(name=name, node=name, spec=NodeSpec(kind="namespace"), address=f"10.78.0.{number}")
        for number, name in enumerate(("client", "server"), 1)
    )
    part = LinkShape(up_mbps=20.0, down_mbps=40.0)
    try:
        make_network(testbed, [client, server])
        if not inside(namespace_of(testbed, client).name, detect_kernel).rates:
            pytest.skip("this kernel has no token bucket: run `modprobe sch_tbf` as root")
        shape_hosts(testbed, [client, server], {("client", "server"): part})
        on_client, on_server = (namespace_of(testbed, host).prefix for host in (client, server))
        module = [sys.executable, "-m", "nearsight.experiments.links.probe", "--listen", server.address]
        probe, link = tmp_path / "probe.json", tmp_path / "link.json"
        with subprocess.Popen([*on_server, *module, "--announce", str(probe)]) as serving:
            try:
                wait_until(probe.exists, what="the probe", timeout_s=100.0)
                endpoint = json.loads(probe.read_text())["endpoint"]
                shape = LinkShape(rtt_ms=2.0, up_mbps=20.0, down_mbps=40.0)
                order = ShaperSettings(endpoint, shape, str(tmp_path / "stats"), kernel=part, probe=endpoint)
                shaper = [sys.executable, *order.arguments(), "--announce", str(link)]
                with subprocess.Popen([*on_client, *shaper]) as shaping:
                    try:
                        wait_until(link.exists, what="the link", timeout_s=100.0)
                    finally:
                        shaping.terminate()
            finally:
                serving.terminate()
        found = json.loads(link.read_text())["calibration"]
    finally:
        remove_network(testbed)
    assert found["kernel"]["up_mbps"] == 20.0
    # A busy machine may be slower. A receiver that was stopped reads what arrived meanwhile at once, so the
    # limit is far above the rate, and far below that of a link without a bucket.
    assert 0.0 < found["up_mbps"] < 60.0
    assert 0.0 < found["down_mbps"] < 120.0
