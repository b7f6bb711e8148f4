import pytest

from nearsight.common.errors import (
    CorruptStore,
    DeadlineExceeded,
    ImageTooLarge,
    InternalError,
    InvalidArgument,
    NearsightError,
    NotFound,
    Overloaded,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.envelope import error_of, outcome_of
from nearsight.protos import rpc_pb2


def test_codes_have_the_numbers_of_the_wire() -> None:
    assert {code.name: code.value for code in StatusCode} == dict(rpc_pb2.Status.items())


@pytest.mark.parametrize(
    "error",
    [InvalidArgument, NotFound, DeadlineExceeded, Overloaded, Unavailable, Unauthenticated, InternalError],
)
def test_an_error_of_the_tree_travels_whole(error: type[NearsightError]) -> None:
    outcome = outcome_of(error("what", advice="next"), "t1")
    back = error_of(outcome.code, outcome.error, outcome.advice)
    assert type(back) is error
    assert (back.message, back.advice) == ("what", "next")


def test_a_finer_error_travels_as_the_one_that_its_code_stands_for() -> None:
    outcome = outcome_of(ImageTooLarge("too large"), "")
    assert type(error_of(outcome.code, outcome.error, outcome.advice)) is InvalidArgument


@pytest.mark.parametrize(
    "error", [ValueError("secret /etc/path"), KeyError("secret"), CorruptStore("secret.db")]
)
def test_a_bug_or_trouble_of_this_machine_tells_the_peer_only_the_trace_id(error: Exception) -> None:
    outcome = outcome_of(error, "t1")
    assert outcome.code is StatusCode.INTERNAL
    assert "secret" not in outcome.error + outcome.advice
    assert "t1" in outcome.advice


def test_a_status_of_a_newer_peer_counts_as_internal() -> None:
    assert isinstance(error_of(99, "?", ""), InternalError)


def test_a_very_long_text_is_cut() -> None:
    assert len(outcome_of(InvalidArgument("x" * 10**6), "").error) <= 2000
