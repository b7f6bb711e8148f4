"""The end of a pool whose handlers do not end."""

import threading

from nearsight.common.clock import ManualClock
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.worker_pool import WorkerPool


def test_stopping_waits_for_all_stuck_handlers_together_no_longer_than_for_one() -> None:
    clock = ManualClock()

    class Stuck(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            clock.advance(timeout or 0.0)

        def is_alive(self) -> bool:
            return True

    pool = WorkerPool("test", 3, ServerSettings(), clock, lambda _: None, lambda *_: None)
    pool._threads += [Stuck() for _ in range(3)]
    begun_s = clock.monotonic()
    pool.stop(timeout_s=600.0)
    assert clock.monotonic() - begun_s == 600.0
