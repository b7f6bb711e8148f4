import math

from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import LONGEST_S, Deadline, ManualClock, clamp_s


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


@given(st.floats())
def test_any_time_left_becomes_one_that_the_wire_can_carry(seconds: float) -> None:
    kept = clamp_s(seconds)
    assert 0.0 <= kept <= LONGEST_S
    assert int(kept * 1000) < 2**32
    if not math.isnan(seconds) and 0.0 <= seconds <= LONGEST_S:
        assert kept == seconds
