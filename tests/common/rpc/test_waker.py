"""What interrupts a waiting thread, and who gives its descriptors back."""

import os
import subprocess
import sys

import pytest

from nearsight.common.rpc.sockets import Waker

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
    descriptor = waker.fileno()
    del waker
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
