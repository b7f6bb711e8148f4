"""Hosts as network namespaces on one switch."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from nearsight.experiments.links import namespaces
from nearsight.experiments.links.kernel_links import Rate
from nearsight.experiments.links.namespaces import Namespace, NamespaceNetwork, remove_leftovers
from support.namespaces import entered, on

pytestmark = [pytest.mark.system, pytest.mark.needs("namespaces")]


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    with NamespaceNetwork(3) as network:
        yield network


def names() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def receiver(node: Namespace, port: int = 7400) -> socket.socket:
    with entered(node):
        listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("", port))
    listening.settimeout(100.0)
    return listening


def broadcast(node: Namespace, data: bytes) -> None:
    with on(node, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind((node.address, 0))
        sender.sendto(data, ("255.255.255.255", 7400))


def test_a_broadcast_reaches_all_other_hosts(network: NamespaceNetwork) -> None:
    first, *others = network.nodes
    with receiver(others[0]) as one, receiver(others[1]) as two:
        broadcast(first, b"hello")
        assert one.recvfrom(100)[1][0] == first.address
        assert two.recvfrom(100)[0] == b"hello"


def test_a_command_runs_on_its_host(network: NamespaceNetwork) -> None:
    command = "import socket; s = socket.socket(); s.bind(('10.77.0.2', 0)); print('bound')"
    done = subprocess.run(
        [*network.nodes[1].prefix, sys.executable, "-S", "-c", command],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "bound\n"


def test_the_machine_itself_is_not_on_the_network(network: NamespaceNetwork) -> None:
    with socket.socket() as outside, pytest.raises(OSError, match="Cannot assign"):
        outside.bind((network.nodes[0].address, 0))


def test_the_lower_rate_of_sender_and_receiver_is_not_exceeded() -> None:
    size_bytes = 1_000_000
    with NamespaceNetwork(2, rate=Rate(up_mbps=20, down_mbps=40)) as network:
        a, b = network.nodes
        with (
            on(b, lambda: socket.create_server(("", 0))) as server,
            on(a, lambda: socket.create_connection((b.address, server.getsockname()[1]))) as sender,
            server.accept()[0] as receiving,
        ):
            start_s = time.monotonic()
            sending = threading.Thread(target=sender.sendall, args=(bytes(size_bytes),))
            sending.start()
            left = size_bytes
            while left:
                left -= len(receiving.recv(65_536))
            mbps = size_bytes * 8 / (time.monotonic() - start_s) / 1e6
            sending.join()
    assert mbps < 24  # a busy machine may be slower


def test_the_namespaces_are_removed_if_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), NamespaceNetwork(2) as network:
        ours = {node.name for node in network.nodes}
        assert ours <= names()
        raise ZeroDivisionError
    assert not ours & names()


def test_remaining_processes_on_a_host_are_ended() -> None:
    command = [sys.executable, "-S", "-c", "input('in\\n')"]
    with NamespaceNetwork(1) as network:
        left = subprocess.Popen(
            [*network.nodes[0].prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert left.stdout is not None
        assert left.stdout.readline() == b"in\n"
    assert left.wait(100) < 0
    left.communicate()


def test_the_namespaces_of_killed_runs_are_removed_and_those_of_running_ones_stay() -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    leftover = f"nearsight-{dead.pid}-12345-1-hub"
    reused_id = f"nearsight-{os.getpid()}-1-1-hub"
    for name in (leftover, reused_id):
        subprocess.run(["ip", "netns", "add", name], check=True)
    with NamespaceNetwork(1) as network:  # removes leftovers itself
        remove_leftovers()
        left = names()
        assert network.nodes[0].name in left
    assert not {leftover, reused_id} & left


def test_the_reason_for_missing_namespaces_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    namespaces.unavailable_reason.cache_clear()
    try:
        assert "ip" in namespaces.unavailable_reason()
    finally:
        namespaces.unavailable_reason.cache_clear()


def test_addresses_of_neighbours_are_permanent_so_that_the_kernel_drops_none_of_many(
    network: NamespaceNetwork,
) -> None:
    first = network.nodes[0]
    listed = subprocess.run(
        ["ip", "-n", first.name, "neigh", "show"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    permanent = {line.split()[0] for line in listed if "PERMANENT" in line}
    assert permanent == {node.address for node in network.nodes[1:]}
