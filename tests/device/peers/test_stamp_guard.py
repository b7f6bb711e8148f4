"""Stamps and counts that nobody can have reached stay out."""

from __future__ import annotations

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.shared_store import (
    LARGEST_COUNT,
    LEAST_LIMIT,
    SharedStore,
    check_stamps,
    largest_counter,
)
from nearsight.device.peers.store.stamps import EPOCH_S, Stamp, date_counter
from nearsight.device.peers.store.values import Contribution, Counters, Entry, Register

YEAR_S = 365 * 86_400.0


def register(counter: int) -> Entry:
    return Entry("k", value=Register(b"", Stamp(counter, 1)))


def test_the_limit_follows_the_date_and_not_what_was_seen() -> None:
    clock = ManualClock(EPOCH_S + 6 * YEAR_S)
    shared = SharedStore(PeerSettings(), 1, clock)
    limit = largest_counter(clock.wall())
    shared.admit(shared.encode(register(limit)))
    assert shared.stamps.counter == limit
    with pytest.raises(InvalidMessage):
        shared.admit(shared.encode(register(limit + 1)))
    with pytest.raises(InvalidMessage):
        shared.admit(shared.encode(Entry("k", cleared=Stamp(limit + 1, 1))))
    assert shared.stamps.counter == limit
    clock.advance(0.001)
    check_stamps(register(shared.stamp().counter), clock.wall())


def test_a_device_whose_date_is_wrong_takes_what_honest_devices_write() -> None:
    check_stamps(register(LEAST_LIMIT), 0.0)
    for years in (6, 80, 7979):
        check_stamps(register(date_counter(EPOCH_S + years * YEAR_S)), 0.0)
    with pytest.raises(InvalidMessage):
        check_stamps(register(LEAST_LIMIT + 1), 0.0)


def test_a_thousand_years_of_lies_do_not_reach_the_end_of_counters() -> None:
    assert largest_counter(EPOCH_S + 1000 * YEAR_S) < 2**62


def test_counts_are_bounded() -> None:
    absurd = Contribution(1, Stamp(5, 1), {"x": LARGEST_COUNT + 1})
    with pytest.raises(InvalidMessage):
        check_stamps(Entry("k", value=Counters((absurd,))), EPOCH_S)
