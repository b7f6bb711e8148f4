"""Answers and errors of the cloud, as the edge interprets them."""

from concurrent.futures import Future

import pytest

from nearsight.common.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    NearsightError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import catalogues_of, outcome_of
from nearsight.protos import catalogue_pb2 as pb


def test_catalogues_have_revisions() -> None:
    summary = pb.CatalogueSummary(name="museum", revision=3)
    reply = Reply(pb.ListCataloguesResponse(catalogues=[summary]), (), (), 10, 20)
    assert catalogues_of(reply)["museum"].revision == 3


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unauthenticated("wrong key"), Unavailable),
        (Unavailable("nobody there"), Unavailable),
        (Cancelled("closed"), Unavailable),
        (DeadlineExceeded("late"), DeadlineExceeded),
        (NotFound("no such catalogue"), NotFound),
        (ZeroDivisionError(), InternalError),
    ],
)
def test_errors_of_the_cloud_are_mapped_to_errors_for_devices(
    error: Exception, expected: type[NearsightError]
) -> None:
    future: Future[Reply] = Future()
    future.set_exception(error)
    assert type(outcome_of(future)) is expected


def test_a_cancelled_call_is_unavailable() -> None:
    future: Future[Reply] = Future()
    future.cancel()
    assert isinstance(outcome_of(future), Unavailable)
