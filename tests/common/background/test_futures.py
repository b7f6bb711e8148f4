"""Helpers for futures."""

from concurrent.futures import Future

import pytest

from nearsight.common.background.futures import failed, flat, outcome_of, pending, then, when_done
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError, Unavailable
from support.manual_background import ManualBackground


def test_a_pending_future_cannot_be_cancelled() -> None:
    assert not pending().cancel()


def test_then_converts_a_result() -> None:
    first: Future[int] = pending()
    second = then(first, str)
    assert not second.done()
    first.set_result(7)
    assert second.result(0) == "7"


def test_then_passes_on_errors_and_reports_those_of_the_conversion() -> None:
    assert isinstance(outcome_of(then(failed(Unavailable("gone")), str)), Unavailable)
    first: Future[str] = pending()
    second = then(first, int)
    first.set_result("x")
    with pytest.raises(ValueError, match="invalid literal"):
        second.result(0)
    third: Future[str] = pending()

    def refuse(_: str) -> str:
        raise InvalidMessage("nonsense")

    refused = then(third, refuse)
    third.set_result("x")
    assert isinstance(outcome_of(refused), InvalidMessage)


def test_flat_waits_for_the_inner_future() -> None:
    outer: Future[Future[int]] = pending()
    result = flat(outer)
    inner: Future[int] = pending()
    outer.set_result(inner)
    assert not result.done()
    inner.set_result(7)
    assert result.result(0) == 7
    assert isinstance(outcome_of(flat(failed(Unavailable("gone")))), Unavailable)
    later: Future[Future[int]] = pending()
    later.set_result(failed(Unavailable("gone")))
    assert isinstance(outcome_of(flat(later)), Unavailable)


def test_a_foreign_exception_becomes_an_internal_error() -> None:
    strange: Future[int] = pending()
    strange.set_exception(KeyError("x"))
    assert isinstance(outcome_of(strange), InternalError)


def test_when_done_passes_the_outcome_to_the_background_thread() -> None:
    background = ManualBackground(ManualClock())
    came: list[int | NearsightError] = []
    first: Future[int] = pending()
    when_done(first, background, came.append)
    first.set_result(3)
    assert came == []
    background.run()
    assert came == [3]
