"""Handlers of signals for a block. Devices of a plain install use them, so this module needs only Python."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


def termination_as_interrupt() -> AbstractContextManager[None]:
    """Within the block, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that clean-up code runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise KeyboardInterrupt

    return handled(interrupt, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    """Set the handler of signals for a block.

    Only the main thread may set signal handlers; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
