"""Validation of answers about a key, and the adaptive timeout."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidMessage
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.replica_calls import AdaptiveTimeout, ReplicaCalls
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Entry
from nearsight.protos.peers_pb2 import (
    EntryMessage,
    ReadResponse,
    RefusalMessage,
    StampMessage,
    WriteResponse,
)
from support.manual_background import ManualBackground


def deleted(key: str) -> EntryMessage:
    return EntryMessage(key=key, cleared=StampMessage(counter=7, writer=1))


@pytest.fixture
def calls() -> ReplicaCalls:
    nobody: Any = SimpleNamespace(connections=None)
    clock, settings = ManualClock(), PeerSettings()
    service: Any = SimpleNamespace(shared=SharedStore(settings, 3, clock))
    return ReplicaCalls(nobody, service, settings, clock, ManualBackground(clock), random.Random(1))


def test_a_retry_that_becomes_due_while_the_store_closes_runs_once(calls: ReplicaCalls) -> None:
    ran: list[str] = []

    class Due(dict[int, Callable[[], None]]):
        """The timers' thread runs a retry at the moment at which the retries are listed."""

        def __iter__(self) -> Iterator[int]:
            calls._repeat(0)
            return super().__iter__()

    calls._repeated = Due()
    calls.again_later(lambda: ran.append("retry"))
    calls.close()
    assert ran == ["retry"]


def reply(message: ReadResponse | WriteResponse) -> Reply:
    return Reply(message, (), (), 0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        WriteResponse(newer=[deleted("another")]),
        WriteResponse(newer=[deleted("k"), deleted("another")]),
        WriteResponse(refused=[RefusalMessage(key="another", reason="full")]),
    ],
    ids=["newer", "newer beside", "refused"],
)
def test_an_answer_to_a_write_about_another_key_is_refused(
    calls: ReplicaCalls, answer: WriteResponse
) -> None:
    with pytest.raises(InvalidMessage):
        calls.newer_of("k", reply(answer))
    assert calls.counts.invalid == 1


def test_newer_entries_and_reasons_of_refusals_are_returned(calls: ReplicaCalls) -> None:
    newer, _ = calls.newer_of("k", reply(WriteResponse(newer=[deleted("k")])))
    assert newer == Entry("k", cleared=Stamp(7, 1), renewed=Stamp(7, 1))
    refused = WriteResponse(refused=[RefusalMessage(key="k", reason="full")])
    assert calls.newer_of("k", reply(refused)) == (None, "full")


def test_the_timeout_follows_response_times_down_to_its_minimum() -> None:
    timeout = AdaptiveTimeout(0.25)
    assert timeout.seconds == 0.25
    for _ in range(50):
        timeout.answered(0.001)
    assert timeout.seconds == AdaptiveTimeout.LEAST_S
    for _ in range(50):
        timeout.answered(0.05)
    assert timeout.seconds == pytest.approx(0.05, rel=0.05)


def test_the_timeout_exceeds_the_mean_of_varying_response_times() -> None:
    timeout = AdaptiveTimeout(0.25)
    for number in range(100):
        timeout.answered(0.03 if number % 2 else 0.05)
    assert 0.06 < timeout.seconds < 0.1


def test_a_timeout_without_an_answer_doubles_until_the_next_answer() -> None:
    timeout = AdaptiveTimeout(0.25)
    for _ in range(50):
        timeout.answered(0.001)
    timeout.exhausted()
    timeout.exhausted()
    assert timeout.seconds == 4 * AdaptiveTimeout.LEAST_S
    timeout.answered(0.001)
    assert timeout.seconds == AdaptiveTimeout.LEAST_S


@given(st.lists(st.one_of(st.none(), st.floats(0, 10)), max_size=50))
def test_the_timeout_stays_within_its_bounds(events: list[float | None]) -> None:
    timeout = AdaptiveTimeout(0.25)
    for took_s in events:
        if took_s is None:
            timeout.exhausted()
        else:
            timeout.answered(took_s)
        assert AdaptiveTimeout.LEAST_S <= timeout.seconds <= 0.25
