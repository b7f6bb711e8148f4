"""What the edge sends to the cloud."""

import pytest

from nearsight.common.errors import InternalError
from nearsight.common.recognition.codec import features_from_proto
from nearsight.edge.service import Query, forwarded
from support.objects import random_features

FEATURES = random_features(1, 40)
SIZE = 40 * 38
SMALL, LARGE = bytes(SIZE - 1), bytes(SIZE)


@pytest.mark.parametrize(
    ("query", "forward", "kind"),
    [
        (Query(SMALL, FEATURES), "auto", "image"),
        (Query(LARGE, FEATURES), "auto", "features"),
        (Query(SMALL, FEATURES), "features", "features"),
        (Query(LARGE, FEATURES), "image", "image"),
        (Query(LARGE, None), "auto", "image"),
        (Query(None, FEATURES), "auto", "features"),
        (Query(None, FEATURES), "image", "features"),
    ],
)
def test_the_cloud_gets_fewer_bytes_unless_the_setting_says_otherwise(
    query: Query, forward: str, kind: str
) -> None:
    request, blobs = forwarded(query, forward)
    assert request.WhichOneof("input") == kind
    if kind == "image":
        assert (blobs, request.image.size_bytes) == ([query.image], len(query.image))
    else:
        assert len(features_from_proto(request.features, blobs)) == 40


def test_a_query_of_nothing_is_a_bug() -> None:
    with pytest.raises(InternalError):
        forwarded(Query(None, None), "auto")
