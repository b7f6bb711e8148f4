"""Jobs run one after another, in order of their time, whatever happens to one of them."""

import threading
from collections.abc import Iterator

import pytest

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import Unavailable
from support.waiting import wait_until


@pytest.fixture
def worker() -> Iterator[BackgroundWorker]:
    worker = BackgroundWorker(SYSTEM_CLOCK)
    worker.start()
    yield worker
    worker.stop(5.0)


def test_jobs_run_in_the_order_of_their_time(worker: BackgroundWorker) -> None:
    done: list[str] = []
    worker.submit(lambda: done.append("later"), after_s=0.05)
    worker.submit(lambda: done.append("first"))
    worker.submit(lambda: done.append("second"))
    wait_until(lambda: len(done) == 3)
    assert done == ["first", "second", "later"]


def test_of_jobs_with_one_name_one_waits(worker: BackgroundWorker) -> None:
    gate = threading.Event()
    done: list[int] = []
    worker.submit(lambda: gate.wait(10) and None)
    for number in range(5):
        worker.submit(lambda number=number: done.append(number), name="same")
    worker.submit(lambda: done.append(99))
    gate.set()
    wait_until(lambda: 99 in done)
    assert done == [0, 99]


class Work:
    """Something with a job."""

    def __init__(self) -> None:
        self.done = 0

    def do(self) -> None:
        self.done += 1


def test_jobs_of_two_objects_wait_beside_each_other_whatever_their_name(worker: BackgroundWorker) -> None:
    gate = threading.Event()
    former, successor = Work(), Work()
    worker.submit(lambda: gate.wait(10) and None)
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


def test_a_nearer_time_replaces_a_farther_one(worker: BackgroundWorker) -> None:
    done: list[str] = []
    worker.submit(lambda: done.append("far"), name="same", after_s=3600.0)
    worker.submit(lambda: done.append("near"), name="same")
    wait_until(lambda: done == ["near"])
    worker.submit(lambda: done.append("next"), name="same")
    wait_until(lambda: done == ["near", "next"])


@pytest.mark.parametrize("error", [Unavailable("gone"), ZeroDivisionError()])
def test_a_job_that_fails_does_not_end_the_others(worker: BackgroundWorker, error: Exception) -> None:
    done = threading.Event()

    def fail() -> None:
        raise error

    worker.submit(fail)
    worker.submit(done.set)
    assert done.wait(10)


def test_what_waits_is_dropped_at_the_end(worker: BackgroundWorker) -> None:
    done: list[int] = []
    worker.submit(lambda: done.append(1), after_s=0.2)
    worker.stop(5.0)
    worker.submit(lambda: done.append(2))
    assert done == []
