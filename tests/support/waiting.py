"""Waits for effects of other threads and processes, without fixed delays."""

import time
from collections.abc import Callable

LONG_S = 100.0
"""Limit of waits and requests that succeed, however busy the machine is [s]; a test may take 120 s."""


def wait_until(condition: Callable[[], bool], *, timeout_s: float = LONG_S, what: str = "condition") -> None:
    """Return as soon as ``condition()`` holds.

    Raises
    ------
    AssertionError
        If it does not hold within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what} did not hold within {timeout_s} s")
        time.sleep(0.005)
