"""Wakers of waiting threads, which close their descriptors."""

import errno
import os
import subprocess
import sys

import pytest

from nearsight.common.rpc.sockets import Waker, cannot_listen, listen_on

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
    ("address", "said"),
    [
        ("tcp://127.0.0.1:80", "this user may not listen on tcp://127.0.0.1:80; choose a port from 1024 on"),
        ("ipc:///root/s", "cannot listen on ipc:///root/s: Permission denied; listen on an address"),
    ],
)
def test_an_address_without_permission_gets_the_next_step(address: str, said: str) -> None:
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert str(cannot_listen(address, refused, "tcp://127.0.0.1:0")).startswith(said)


def test_the_name_of_a_network_interface_stands_for_its_address() -> None:
    listening, endpoint = listen_on("tcp://lo:0")
    with listening:
        assert endpoint.startswith("tcp://127.0.0.1:")
