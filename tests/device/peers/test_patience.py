"""How long one device is waited for before the next is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.peers.store.replica_calls import AdaptiveTimeout


def test_it_follows_answers_from_the_longest_down_to_the_least() -> None:
    timeout = AdaptiveTimeout(0.25)
    assert timeout.seconds == 0.25
    for _ in range(50):
        timeout.answered(0.001)
    assert timeout.seconds == AdaptiveTimeout.LEAST_S
    for _ in range(50):
        timeout.answered(0.05)
    assert timeout.seconds == pytest.approx(0.05, rel=0.05)


def test_answers_that_differ_are_given_more_time_than_their_mean() -> None:
    timeout = AdaptiveTimeout(0.25)
    for number in range(100):
        timeout.answered(0.03 if number % 2 else 0.05)
    assert 0.06 < timeout.seconds < 0.1


def test_silence_doubles_it_until_the_next_answer() -> None:
    timeout = AdaptiveTimeout(0.25)
    for _ in range(50):
        timeout.answered(0.001)
    timeout.exhausted()
    timeout.exhausted()
    assert timeout.seconds == 4 * AdaptiveTimeout.LEAST_S
    timeout.answered(0.001)
    assert timeout.seconds == AdaptiveTimeout.LEAST_S


@given(st.lists(st.one_of(st.none(), st.floats(0, 10)), max_size=50))
def test_it_stays_within_its_bounds_whatever_happens(events: list[float | None]) -> None:
    timeout = AdaptiveTimeout(0.25)
    for took_s in events:
        if took_s is None:
            timeout.exhausted()
        else:
            timeout.answered(took_s)
        assert AdaptiveTimeout.LEAST_S <= timeout.seconds <= 0.25
