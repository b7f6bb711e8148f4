"""Progress of long work. The work reports each step; a log receives a report every two seconds."""

from __future__ import annotations

from collections.abc import Callable

from nearsight.common.clock import Clock

Progress = Callable[[int, int], None]
"""Called with the number of completed steps and the total number."""

_INTERVAL_S = 2.0


def at_intervals(report: Progress, clock: Clock) -> Progress:
    """Forward a report only if the last one, or the start, was at least two seconds ago; for logs."""
    last_s = clock.monotonic()

    def step(done: int, total: int) -> None:
        nonlocal last_s
        now_s = clock.monotonic()
        if now_s - last_s >= _INTERVAL_S:
            last_s = now_s
            report(done, total)

    return step
