from nearsight.common.clock import ManualClock
from nearsight.common.rpc.service import Deadline


def test_a_deadline_counts_down_and_expires() -> None:
    clock = ManualClock(100.0)
    deadline = Deadline.after(2.0, clock)
    assert deadline.remaining_s() == 2.0
    assert not deadline.expired()
    clock.advance(1.5)
    assert deadline.remaining_s() == 0.5
    clock.advance(0.5)
    assert deadline.expired()
    clock.advance(5.0)
    assert deadline.remaining_s() == 0.0
