"""One request in flight per object; objects do not block each other."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nearsight.common.catalogue.holdback import LONGEST_DELAY_S, HoldbackQueue


def test_an_object_in_flight_is_not_requested_again() -> None:
    queue = HoldbackQueue()
    assert queue.take(["a", "b"], 10) == ("a", "b")
    assert queue.take(["a", "b", "c"], 10) == ("c",)


def test_a_received_object_may_be_requested_again() -> None:
    queue = HoldbackQueue()
    queue.take(["a"], 1)
    queue.succeeded(["a"])
    assert queue.take(["a"], 1) == ("a",)


def test_the_back_off_of_a_failing_object_doubles_up_to_a_limit() -> None:
    queue = HoldbackQueue()
    now = 0.0
    assert queue.take(["a"], 1) == ("a",)
    for wait in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        queue.failed(["a"], now)
        assert queue.next_retry_s(["a"], now) == pytest.approx(wait)
        assert queue.take_retry(["a"], now + wait - 0.01) is None
        assert queue.take(["a"], 1) == (), "a failed object is requested alone"
        now += wait
        assert queue.take_retry(["a"], now) == "a"
        assert queue.take_retry(["a"], now) is None, "in flight"


def test_a_missing_object_does_not_block_the_others() -> None:
    queue = HoldbackQueue()
    queue.take(["missing"], 1)
    queue.failed(["missing"], 0.0)
    assert queue.take(["missing", "a", "b"], 1) == ("a",)
    assert queue.take(["missing", "a", "b"], 1) == ("b",)


def test_the_object_with_the_fewest_failures_is_retried_first() -> None:
    queue = HoldbackQueue()
    queue.take(["silent", "a"], 2)
    queue.failed(["silent"], 0.0)
    assert queue.take_retry(["silent", "a"], 1.0) == "silent"
    queue.failed(["silent", "a"], 2.0)
    assert queue.take_retry(["silent", "a"], 10.0) == "a"
    assert queue.take_retry(["silent", "a"], 10.0) == "silent"


def test_failures_of_objects_that_are_no_longer_wanted_are_deleted() -> None:
    queue = HoldbackQueue()
    queue.take(["a", "b"], 2)
    queue.failed(["a"], 0.0)
    queue.retain(["c"])
    assert queue.take(["a"], 1) == ("a",)
    assert queue.take(["b"], 1) == (), "still in flight"


def test_without_failures_there_is_no_retry_time() -> None:
    assert HoldbackQueue().next_retry_s(["a"], 0.0) is None


class HoldbackMachine(RuleBasedStateMachine):
    """In any order of events, an object is requested only while no request for it is in flight."""

    names = st.lists(st.sampled_from("abcde"), unique=True, max_size=5)

    def __init__(self) -> None:
        super().__init__()
        self.queue = HoldbackQueue()
        self.now = 0.0
        self.open: set[str] = set()

    @rule(objects=names, limit=st.integers(0, 5))
    def take(self, objects: list[str], limit: int) -> None:
        chosen = self.queue.take(objects, limit)
        assert len(chosen) <= limit
        for name in chosen:
            assert name in objects
            assert name not in self.open
            self.open.add(name)

    @rule(objects=names)
    def take_retry(self, objects: list[str]) -> None:
        name = self.queue.take_retry(objects, self.now)
        if name is not None:
            assert name in objects
            assert name not in self.open
            self.open.add(name)

    @rule(objects=names)
    def succeed(self, objects: list[str]) -> None:
        self.queue.succeeded(objects)
        self.open.difference_update(objects)

    @rule(objects=names)
    def fail(self, objects: list[str]) -> None:
        self.queue.failed(objects, self.now)
        self.open.difference_update(objects)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(objects=names)
    def retain(self, objects: list[str]) -> None:
        self.queue.retain(objects)

    @invariant()
    def retries_are_due_within_the_longest_back_off(self) -> None:
        retry = self.queue.next_retry_s("abcde", self.now)
        assert retry is None or 0 <= retry <= LONGEST_DELAY_S + 1e-6


HoldbackMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestHoldbackMachine = HoldbackMachine.TestCase
