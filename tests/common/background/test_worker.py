"""Jobs run one after another, in order of their time, also after one of them failed."""

import threading
from collections.abc import Iterator

import pytest

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK, ManualClock
from nearsight.common.errors import Unavailable
from support.waiting import LONG_S, wait_until


@pytest.fixture
def worker() -> Iterator[BackgroundWorker]:
    worker = BackgroundWorker(SYSTEM_CLOCK)
    worker.start()
    yield worker
    worker.stop(LONG_S)


def test_jobs_run_in_the_order_of_their_time() -> None:
    clock, done = ManualClock(), list[str]()
    worker = BackgroundWorker(clock)
    worker.submit(lambda: done.append("later"), after_s=5.0)
    worker.submit(lambda: done.append("first"))
    worker.submit(lambda: done.append("second"))
    clock.advance(5.0)
    worker.start()
    wait_until(lambda: len(done) == 3)
    worker.stop(LONG_S)
    assert done == ["first", "second", "later"]


def test_of_waiting_jobs_with_the_same_name_only_one_is_kept(worker: BackgroundWorker) -> None:
    gate = threading.Event()
    done: list[int] = []
    worker.submit(lambda: gate.wait(LONG_S) and None)
    for number in range(5):
        worker.submit(lambda number=number: done.append(number), name="same")
    worker.submit(lambda: done.append(99))
    gate.set()
    wait_until(lambda: 99 in done)
    assert done == [0, 99]


class Work:
    """An object whose method is a job."""

    def __init__(self) -> None:
        self.done = 0

    def do(self) -> None:
        self.done += 1


def test_methods_of_two_objects_are_different_jobs_also_with_the_same_name(worker: BackgroundWorker) -> None:
    gate = threading.Event()
    former, successor = Work(), Work()
    worker.submit(lambda: gate.wait(LONG_S) and None)
    for work in (former, successor, successor):
        worker.submit(work.do, name="same")
    done: list[int] = []
    worker.submit(lambda: done.append(99))
    gate.set()
    wait_until(lambda: 99 in done)
    assert (former.done, successor.done) == (1, 1)


def test_a_named_job_may_be_submitted_again_while_it_runs(worker: BackgroundWorker) -> None:
    done: list[int] = []

    def again() -> None:
        done.append(len(done))
        if len(done) < 3:
            worker.submit(again, name="same")

    worker.submit(again, name="same")
    wait_until(lambda: done == [0, 1, 2])


def test_an_earlier_job_replaces_a_later_one_with_the_same_name(worker: BackgroundWorker) -> None:
    done: list[str] = []
    worker.submit(lambda: done.append("far"), name="same", after_s=3600.0)
    worker.submit(lambda: done.append("near"), name="same")
    wait_until(lambda: done == ["near"])
    worker.submit(lambda: done.append("next"), name="same")
    wait_until(lambda: done == ["near", "next"])


@pytest.mark.parametrize("error", [Unavailable("gone"), ZeroDivisionError()])
def test_a_job_that_fails_does_not_stop_later_jobs(worker: BackgroundWorker, error: Exception) -> None:
    done = threading.Event()

    def fail() -> None:
        raise error

    worker.submit(fail)
    worker.submit(done.set)
    assert done.wait(LONG_S)


def test_waiting_jobs_are_dropped_at_the_stop(worker: BackgroundWorker) -> None:
    done: list[int] = []
    worker.submit(lambda: done.append(1), after_s=600.0)
    worker.stop(LONG_S)
    worker.submit(lambda: done.append(2))
    assert done == []
