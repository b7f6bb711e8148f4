"""Addresses, and what interrupts a waiting thread: who gives its descriptors back."""

import os
import subprocess
import sys

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.sockets import Waker, check_endpoint, is_local, is_tcp_v6

AT_THE_END_OF_A_PROCESS = """
import atexit
atexit.register(lambda: (waker.wake(), waker.clear()))  # a thread that goes on: run after all finalizers
from nearsight.common.rpc.sockets import Waker
waker = Waker()
"""


def test_threads_that_an_application_left_running_at_its_end_come_to_no_harm() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_THE_END_OF_A_PROCESS], capture_output=True, check=True)
    assert ended.stderr == b""


def test_one_that_nobody_holds_any_more_gives_its_descriptors_back() -> None:
    waker = Waker()
    descriptor = waker.descriptor
    del waker
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1:7000",
        "tcp://127.1.2.3:0",
        "tcp://localhost:1",
        "tcp://[::1]:7000",
        "ipc:///tmp/x",
        "tcp://lo:5",
    ],
)
def test_addresses_of_this_machine_are_local(endpoint: str) -> None:
    assert is_local(check_endpoint(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:7000", "tcp://0.0.0.0:7000", "tcp://[::]:7000", "tcp://10.0.0.1:7000", "tcp://edge.example:1"],
)
def test_addresses_that_others_can_reach_are_not_local(endpoint: str) -> None:
    assert not is_local(check_endpoint(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "7000",
        "127.0.0.1:7000",
        "tcp://",
        "tcp://host",
        "tcp://host:70000",
        "udp://h:1",
        "ipc://",
        "tcp://a b:x",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="tcp://HOST:PORT"):
        check_endpoint(endpoint)


def test_addresses_of_version_6_are_told_apart() -> None:
    assert is_tcp_v6("tcp://[::1]:7000")
    assert not is_tcp_v6("tcp://127.0.0.1:7000")
