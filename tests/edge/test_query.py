"""What the edge sends to the cloud."""

import pytest

from nearsight.common.errors import InternalError
from nearsight.common.recognition.codec import features_from_proto
from nearsight.edge.query import Query, forwarded
from nearsight.edge.uplink import Uplink
from support.objects import random_features

FEATURES = random_features(1, 40)
SIZE = 40 * 38
SMALL, LARGE = bytes(SIZE - 1), bytes(SIZE)


@pytest.mark.parametrize(
    ("query", "forward", "kind"),
    [
        (Query(SMALL, FEATURES), "auto", "features"),
        (Query(LARGE, FEATURES), "auto", "features"),
        (Query(SMALL, FEATURES), "features", "features"),
        (Query(LARGE, FEATURES), "image", "image"),
        (Query(LARGE, None), "auto", "image"),
        (Query(None, FEATURES), "auto", "features"),
        (Query(None, FEATURES), "image", "features"),
    ],
)
def test_the_cloud_gets_what_is_answered_sooner_unless_the_setting_says_otherwise(
    query: Query, forward: str, kind: str
) -> None:
    sent = forwarded(query, Uplink(forward, 40), None)
    assert sent.request.WhichOneof("input") == sent.form == kind
    if kind == "image":
        assert (sent.blobs, sent.request.image.size_bytes) == ([query.image], len(query.image))
    else:
        assert len(features_from_proto(sent.request.features, sent.blobs)) == 40


def test_features_that_must_be_made_first_are_asked_for() -> None:
    sent = forwarded(Query(LARGE, None), Uplink("features", 40), 5.0)
    assert (sent.form, sent.request.WhichOneof("input")) == ("features", None)


def test_a_query_of_nothing_is_a_bug() -> None:
    with pytest.raises(InternalError):
        forwarded(Query(None, None), Uplink("auto", 40), None)
