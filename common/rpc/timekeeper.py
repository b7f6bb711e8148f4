"""A thread that looks after the times of a server, and sleeps while there is nothing to look after."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nearsight.common.logging import get_logger

TICK_S = 0.05
"""How exactly times are kept."""

IDLE_TICKS = 20
"""Ticks without work before the thread sleeps, so that a trickle of work need not wake it each time."""


class Timekeeper:
    """Calls a function every tick while there is work.

    Parameters
    ----------
    tick : callable
        Looks after the times; returns whether there is still work.
    """

    def __init__(self, tick: Callable[[], bool]) -> None:
        self._tick = tick
        self._log = get_logger("rpc.timekeeper")
        self._asleep = False
        self._ended = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="rpc-time", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notice(self) -> None:
        """There is work; any thread may say so, and it costs nothing while the keeper is awake."""
        if self._asleep:
            self._woken.set()

    def stop(self) -> None:
        """End the thread."""
        self._ended = True
        self._woken.set()
        self._thread.join()

    def _loop(self) -> None:
        idle_ticks = 0
        while not self._ended:
            self._woken.clear()
            # Asleep is said before the last look: whoever adds work after the look wakes us.
            self._asleep = idle_ticks >= IDLE_TICKS
            idle_ticks = 0 if self._look() else idle_ticks + 1
            self._woken.wait(None if self._asleep and idle_ticks else TICK_S)
            self._asleep = False

    def _look(self) -> bool:
        try:
            return self._tick()
        except Exception:  # noqa: BLE001  # a bug in one look must not stop the clock
            self._log.exception("times could not be looked after")
            return True
