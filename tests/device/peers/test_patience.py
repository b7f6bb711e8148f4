"""How long one device is waited for before the next is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.peers.store.replica_calls import LEAST_S, AdaptiveTimeout


def test_it_follows_answers_from_the_longest_down_to_the_least() -> None:
    patience = AdaptiveTimeout(0.25)
    assert patience.s == 0.25
    for _ in range(50):
        patience.answered(0.001)
    assert patience.s == LEAST_S
    for _ in range(50):
        patience.answered(0.05)
    assert patience.s == pytest.approx(0.05, rel=0.05)


def test_answers_that_differ_are_given_more_time_than_their_mean() -> None:
    patience = AdaptiveTimeout(0.25)
    for number in range(100):
        patience.answered(0.03 if number % 2 else 0.05)
    assert 0.06 < patience.s < 0.1


def test_silence_doubles_it_until_the_next_answer() -> None:
    patience = AdaptiveTimeout(0.25)
    for _ in range(50):
        patience.answered(0.001)
    patience.exhausted()
    patience.exhausted()
    assert patience.s == 4 * LEAST_S
    patience.answered(0.001)
    assert patience.s == LEAST_S


@given(st.lists(st.one_of(st.none(), st.floats(0, 10)), max_size=50))
def test_it_stays_within_its_bounds_whatever_happens(events: list[float | None]) -> None:
    patience = AdaptiveTimeout(0.25)
    for took_s in events:
        if took_s is None:
            patience.exhausted()
        else:
            patience.answered(took_s)
        assert LEAST_S <= patience.s <= 0.25
