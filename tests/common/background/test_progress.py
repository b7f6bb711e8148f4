"""Progress that is reported at intervals."""

from nearsight.common.background.progress import at_intervals
from nearsight.common.clock import ManualClock


def test_progress_is_reported_once_per_interval() -> None:
    clock = ManualClock()
    reports: list[tuple[int, int]] = []
    step = at_intervals(lambda done, total: reports.append((done, total)), clock)
    for done in range(10):
        step(done, 10)
        clock.advance(0.5)
    assert reports == [(4, 10), (8, 10)]
