"""How far a long piece of work is. Work reports each step; a log takes a report every two seconds."""

from __future__ import annotations

from collections.abc import Callable

from nearsight.common.clock import Clock

Progress = Callable[[int, int], None]
"""Called with the number of steps done and the number of all."""

_INTERVAL_S = 2.0


def now_and_then(report: Progress, clock: Clock) -> Progress:
    """Report only when the last report, or the beginning, is two seconds ago: for a log."""
    last_s = clock.monotonic()

    def step(done: int, total: int) -> None:
        nonlocal last_s
        now_s = clock.monotonic()
        if now_s - last_s >= _INTERVAL_S:
            last_s = now_s
            report(done, total)

    return step
