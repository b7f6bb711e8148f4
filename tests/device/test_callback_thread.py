"""The callback thread: order, isolation of failures, and closing without lost jobs."""

import asyncio
import threading
from collections.abc import Awaitable

import pytest
from structlog.testing import capture_logs

from nearsight.device.callback_thread import CallbackThread
from support.waiting import LONG_S


def test_jobs_run_in_order_on_another_thread() -> None:
    callbacks, seen = CallbackThread(), []
    for number in range(200):
        callbacks.submit(lambda number=number: seen.append((number, threading.get_ident())))
    assert callbacks.close(LONG_S)
    assert [number for number, _ in seen] == list(range(200))
    threads = {thread for _, thread in seen}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("raised", [ZeroDivisionError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("awaited", [False, True])
def test_an_error_in_a_job_does_not_affect_the_next(raised: BaseException, awaited: bool) -> None:
    callbacks, ran = CallbackThread(), threading.Event()

    def job() -> None:
        raise raised

    async def awaited_job() -> None:
        raise raised

    with capture_logs() as logs:
        callbacks.submit(awaited_job if awaited else job)
        callbacks.submit(ran.set)
        assert callbacks.close(LONG_S)
    assert ran.is_set()
    assert [(line["event"], line["exc_info"]) for line in logs] == [("a callback raised", True)]


def test_a_job_submitted_after_close_still_runs() -> None:
    callbacks, ran = CallbackThread(), threading.Event()
    assert callbacks.close(LONG_S)
    callbacks.submit(ran.set)
    assert ran.wait(LONG_S)


def test_close_from_within_a_job_does_not_wait_for_itself() -> None:
    callbacks, results = CallbackThread(), []
    done = threading.Event()

    def job() -> None:
        results.append(callbacks.close(LONG_S))
        done.set()

    callbacks.submit(job)
    assert done.wait(LONG_S)
    assert results == [False]
    assert callbacks.close(LONG_S)


def test_close_gives_up_on_a_job_that_does_not_return() -> None:
    callbacks, release = CallbackThread(), threading.Event()
    callbacks.submit(lambda: release.wait(LONG_S))
    assert not callbacks.close(0.01)
    release.set()
    assert callbacks.close(LONG_S)


def test_nothing_is_lost_when_jobs_and_close_race() -> None:
    callbacks, seen = CallbackThread(), []
    start = threading.Barrier(5)

    def submit_many(first: int) -> None:
        start.wait(LONG_S)
        for number in range(first, first + 100):
            callbacks.submit(lambda number=number: seen.append(number))

    threads = [threading.Thread(target=submit_many, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    start.wait(LONG_S)
    callbacks.close(LONG_S)
    for thread in threads:
        thread.join(LONG_S)
    assert callbacks.close(LONG_S)
    assert sorted(seen) == list(range(400))


def test_an_async_job_is_awaited_before_the_next_runs() -> None:
    callbacks, seen = CallbackThread(), []

    async def slow() -> None:
        await asyncio.sleep(0)
        seen.append("slow")

    callbacks.submit(slow)
    callbacks.submit(lambda: seen.append("next"))
    assert callbacks.close(LONG_S)
    assert seen == ["slow", "next"]


def test_an_async_job_runs_on_the_loop_that_is_given() -> None:
    callbacks, seen = CallbackThread(), []

    async def main() -> None:
        done = asyncio.Event()

        async def job() -> None:
            seen.append(asyncio.get_running_loop())
            done.set()

        callbacks.submit(job, asyncio.get_running_loop())
        await asyncio.wait_for(done.wait(), LONG_S)
        assert seen == [asyncio.get_running_loop()]

    asyncio.run(main())
    assert callbacks.close(LONG_S)


def test_an_async_job_that_raises_or_cancels_itself_affects_no_other() -> None:
    callbacks, ran = CallbackThread(), threading.Event()

    async def fails() -> None:
        raise ValueError("in the application")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with capture_logs() as logs:
        for job in (fails, cancelled, ran.set):
            callbacks.submit(job)
        assert callbacks.close(LONG_S)
    assert ran.is_set()
    assert [line["event"] for line in logs] == ["a callback raised", "a callback was cancelled"]


@pytest.mark.parametrize("then_async", [False, True])
def test_close_in_the_thread_of_a_loop_waits_for_the_plain_jobs_before_an_async_one(then_async: bool) -> None:
    callbacks, ran, ended = CallbackThread(), [], threading.Event()

    async def last() -> None:
        ended.set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(200):
            callbacks.submit(lambda number=number: ran.append(number), loop)
        if then_async:
            callbacks.submit(last, loop)
        assert callbacks.close(600.0) is not then_async
        assert ran == list(range(200))
        while then_async and not ended.is_set():
            await asyncio.sleep(0)

    asyncio.run(main())
    assert callbacks.close(LONG_S)


def test_an_async_job_that_its_loop_cancels_at_the_end_is_logged_in_one_line() -> None:
    callbacks, begun = CallbackThread(), threading.Event()

    async def job() -> None:
        """Never runs, as the loop ends first."""

    def begin() -> Awaitable[None]:
        begun.set()
        return job()

    async def main() -> None:
        callbacks.submit(begin, asyncio.get_running_loop())
        assert begun.wait(LONG_S)
        assert not callbacks.close(600.0)

    with capture_logs() as logs:
        asyncio.run(main())
        assert callbacks.close(LONG_S)
    assert [(line["event"], "exc_info" in line) for line in logs] == [("a callback was cancelled", False)]


def test_jobs_whose_thread_cannot_start_run_at_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    callbacks, seen = CallbackThread(), []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for number in range(3):
            callbacks.submit(lambda number=number: seen.append(number))
        assert callbacks.close(LONG_S)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_loop_that_is_closed_early_is_logged(when: str) -> None:
    callbacks, loop, begun = CallbackThread(), asyncio.new_event_loop(), threading.Event()

    async def job() -> None:
        """Never runs, as the loop does not run."""

    def begin() -> Awaitable[None]:
        begun.set()
        return job()

    if when == "before":
        loop.close()
    with capture_logs() as logs:
        callbacks.submit(begin, loop)
        assert begun.wait(LONG_S)
        loop.close()
        assert callbacks.close(LONG_S)
    assert [line["event"] for line in logs] == ["a callback raised"]
