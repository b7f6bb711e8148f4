"""Addresses, and wakers of waiting threads, which close their descriptors."""

import errno
import os
import subprocess
import sys

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.sockets import Waker, cannot_listen, check_endpoint, is_local, is_tcp_v6

AT_THE_END_OF_A_PROCESS = """
import atexit
atexit.register(lambda: (waker.wake(), waker.clear()))  # as a thread that still runs: after all finalizers
from nearsight.common.rpc.sockets import Waker
waker = Waker()
"""


def test_threads_that_still_run_at_process_exit_can_use_a_waker() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_THE_END_OF_A_PROCESS], capture_output=True, check=True)
    assert ended.stderr == b""


def test_a_waker_that_is_garbage_collected_closes_its_descriptors() -> None:
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
def test_an_invalid_address_is_refused_with_an_example(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="tcp://HOST:PORT"):
        check_endpoint(endpoint)


def test_ipv6_addresses_are_recognised() -> None:
    assert is_tcp_v6("tcp://[::1]:7000")
    assert not is_tcp_v6("tcp://127.0.0.1:7000")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://127.0.0.1:80", "this user may not listen on tcp://127.0.0.1:80; choose a port from 1024 on"),
        ("ipc:///root/s", "cannot listen on ipc:///root/s: Permission denied; listen on an address"),
    ],
)
def test_an_address_without_permission_gets_the_next_step(address: str, said: str) -> None:
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert str(cannot_listen(address, refused, "tcp://127.0.0.1:0")).startswith(said)
