"""Futures: creating and chaining them, work in a thread of its own, outcomes for a background thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.errors import Cancelled, InternalError, NearsightError

A = TypeVar("A")
B = TypeVar("B")


def pending() -> Future[A]:
    """A future that cannot be cancelled; its creator completes it."""
    future: Future[A] = Future()
    future.set_running_or_notify_cancel()
    return future


def completed(value: A) -> Future[A]:
    """A future that has its result already."""
    future: Future[A] = pending()
    future.set_result(value)
    return future


def failed(error: NearsightError) -> Future[A]:
    """A future that has failed already."""
    future: Future[A] = pending()
    future.set_exception(error)
    return future


def in_thread(work: Callable[[], A], name: str) -> Future[A]:
    """The outcome of work in a thread of its own, for which the end of the process does not wait."""
    outcome: Future[A] = pending()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where the outcome is read
            outcome.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return outcome


def then(
    first: Future[A],
    make: Callable[[A], B],
    fail: Callable[[BaseException], BaseException] = lambda error: error,
) -> Future[B]:
    """A future of ``make`` applied to a result, or of ``fail`` applied to an error.

    They run in the thread that completes ``first``, or at once if that is complete, so they must be short.
    """
    result: Future[B] = pending()

    def go_on(done: Future[A]) -> None:
        error = done.exception()
        if error is not None:
            result.set_exception(fail(error))
            return
        try:
            result.set_result(make(done.result()))
        except Exception as refused:  # noqa: BLE001  a caller waits for any outcome
            result.set_exception(refused)

    first.add_done_callback(go_on)
    return result


def flat(outer: Future[Future[A]]) -> Future[A]:
    """The inner outcome of a future of a future."""
    result: Future[A] = pending()

    def go_on(done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            result.set_exception(error)
        elif done is outer:
            done.result().add_done_callback(go_on)
        else:
            result.set_result(done.result())

    outer.add_done_callback(go_on)
    return result


def when_done(
    future: Future[A], background: BackgroundWorker, do: Callable[[A | NearsightError], None]
) -> None:
    """Call ``do`` with the outcome, in the background thread."""

    def hand_over(done: Future[A]) -> None:
        outcome = outcome_of(done)
        background.submit(lambda: do(outcome))

    future.add_done_callback(hand_over)


def outcome_of(done: Future[A]) -> A | NearsightError:
    """The result of a completed future, or its error."""
    if done.cancelled():
        return Cancelled("the call was cancelled")
    error = done.exception()
    if error is None:
        return done.result()
    return error if isinstance(error, NearsightError) else InternalError(f"unexpected {error!r}")
