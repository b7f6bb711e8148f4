"""The network of a testbed's namespaces: it carries broadcasts, and is removed by its id alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.testbed.inventory import Host, NodeSpec
from nearsight.experiments.testbed.node_network import make_network, namespace_of, remove_network
from support.testbeds import left_of, own_id

pytestmark = [pytest.mark.system, pytest.mark.needs("namespaces")]
LISTEN = """
import socket
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 7400))
heard.settimeout(20)
print("listening", flush=True)
print(*heard.recvfrom(100), flush=True)
"""
SHOUT = """
import socket
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
out.bind(("10.78.0.1", 7401))
out.sendto(b"hello", ("255.255.255.255", 7400))
"""


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


def test_a_broadcast_of_one_host_reaches_the_other(testbed: str, hosts: list[Host]) -> None:
    first, second = (namespace_of(testbed, host).prefix for host in hosts)
    with subprocess.Popen(
        [*second, sys.executable, "-S", "-c", LISTEN], stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        subprocess.run([*first, sys.executable, "-S", "-c", SHOUT], check=True)
        assert listener.stdout.readline() == "b'hello' ('10.78.0.1', 7401)\n"


def test_what_a_killed_run_left_is_removed_by_the_next(hosts: list[Host]) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = f"test{dead.pid}"
    make_network(left, hosts)
    own_id()
    assert left_of(left) == []


def test_removing_it_ends_what_runs_in_it_and_may_be_repeated(testbed: str, hosts: list[Host]) -> None:
    waits = "import signal; print('in', flush=True); signal.pause()"
    with subprocess.Popen(
        [*namespace_of(testbed, hosts[0]).prefix, sys.executable, "-S", "-c", waits],
        stdout=subprocess.PIPE,
        text=True,
    ) as inside:
        assert inside.stdout is not None
        assert inside.stdout.readline() == "in\n"
        remove_network(testbed)
        assert inside.wait(10) != 0
    assert left_of(testbed) == []
    remove_network(testbed)


def test_namespaces_that_are_in_the_way_are_named_with_what_removes_them(
    testbed: str, hosts: list[Host]
) -> None:
    with pytest.raises(SetupError, match=rf"nstb-{testbed}.*File exists") as caught:
        make_network(testbed, hosts)
    assert "ip netns delete" in caught.value.advice
