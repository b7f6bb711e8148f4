"""Outcomes that come later."""

from concurrent.futures import Future

import pytest

from nearsight.common.background.futures import failed, flat, outcome_of, pending, then, when_done
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError, Unavailable
from support.manual_background import ManualBackground


def test_a_pending_future_cannot_be_cancelled() -> None:
    assert not pending().cancel()


def test_an_outcome_is_turned_into_another() -> None:
    first: Future[int] = pending()
    second = then(first, str)
    assert not second.done()
    first.set_result(7)
    assert second.result(0) == "7"


def test_failures_go_on_unchanged_and_those_of_the_turning_are_told() -> None:
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


def test_of_two_outcomes_one_after_the_other_the_last_counts() -> None:
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


def test_what_is_no_error_of_ours_becomes_one() -> None:
    strange: Future[int] = pending()
    strange.set_exception(KeyError("x"))
    assert isinstance(outcome_of(strange), InternalError)


def test_an_outcome_is_carried_to_the_background() -> None:
    background = ManualBackground(ManualClock())
    came: list[int | NearsightError] = []
    first: Future[int] = pending()
    when_done(first, background, came.append)
    first.set_result(3)
    assert came == []
    background.run()
    assert came == [3]
