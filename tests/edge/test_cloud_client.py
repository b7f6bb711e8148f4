"""Answers and errors of the cloud, as the edge interprets them."""

import pytest

from nearsight.common.errors import (
    DeadlineExceeded,
    NearsightError,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import catalogues_of, error_of_cloud
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
        (DeadlineExceeded("late"), DeadlineExceeded),
        (NotFound("no such catalogue"), NotFound),
    ],
)
def test_errors_of_the_cloud_are_mapped_to_errors_for_devices(
    error: NearsightError, expected: type[NearsightError]
) -> None:
    assert type(error_of_cloud(error)) is expected
