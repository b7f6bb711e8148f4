"""Stamps and counts that nobody can have reached stay out."""

from __future__ import annotations

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.store.shared_store import LARGEST_COUNT, LEAST_LIMIT, StampGuard
from nearsight.device.peers.store.stamps import EPOCH_S, LamportClock, Stamp, date_counter
from nearsight.device.peers.store.values import Contribution, Counters, Entry, Register

YEAR_S = 365 * 86_400.0


def register(counter: int) -> Entry:
    return Entry("k", value=Register(b"", Stamp(counter, 1)))


def test_the_limit_follows_the_date_and_not_what_was_seen() -> None:
    clock, stamps = ManualClock(EPOCH_S + 6 * YEAR_S), LamportClock(1)
    guard = StampGuard(stamps, clock)
    limit = guard._limit()
    guard.admit(register(limit))
    assert stamps.counter == limit
    with pytest.raises(InvalidMessage):
        guard.admit(register(limit + 1))
    with pytest.raises(InvalidMessage):
        guard.admit(Entry("k", cleared=Stamp(limit + 1, 1)))
    clock.advance(0.001)
    guard.admit(register(stamps.next().counter))


def test_a_device_whose_date_is_wrong_takes_what_honest_devices_write() -> None:
    guard = StampGuard(LamportClock(1), ManualClock(0))
    guard.admit(register(LEAST_LIMIT))
    with pytest.raises(InvalidMessage):
        guard.admit(register(LEAST_LIMIT + 1))


def test_a_device_with_a_date_in_the_past_takes_what_others_write_by_theirs_whatever_that_is() -> None:
    guard = StampGuard(LamportClock(1), ManualClock(0))
    for years in (6, 80, 7979):
        guard.admit(register(date_counter(EPOCH_S + years * YEAR_S)))


def test_a_thousand_years_of_lies_do_not_reach_the_end_of_counters() -> None:
    assert StampGuard(LamportClock(1), ManualClock(EPOCH_S + 1000 * YEAR_S))._limit() < 2**62


def test_counts_are_bounded() -> None:
    stamps = LamportClock(1)
    guard = StampGuard(stamps, ManualClock(EPOCH_S))
    absurd = Contribution(1, Stamp(5, 1), {"x": LARGEST_COUNT + 1})
    with pytest.raises(InvalidMessage):
        guard.admit(Entry("k", value=Counters((absurd,))))
    assert stamps.counter == 0
