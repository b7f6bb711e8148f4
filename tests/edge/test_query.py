"""Forms and messages in which a request can be forwarded to the cloud."""

import pytest

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InternalError
from nearsight.common.recognition.codec import features_from_proto
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.effects import Extract
from nearsight.common.rpc.allow_list import Caller
from nearsight.common.rpc.service import CallContext, Deadline
from nearsight.edge.query import EdgeQuery
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest
from support.objects import random_features

FEATURES = random_features(1, 40)
SIZE = 40 * 38
SETTINGS = RecognitionSettings(query_features=60)
PHOTO = bytes(9_000)


@pytest.mark.parametrize(
    ("query", "forms"),
    [
        (EdgeQuery(PHOTO, FEATURES, SETTINGS), {"features": SIZE, "image": 9_000}),
        (EdgeQuery(PHOTO, None, SETTINGS), {"features": 77, "image": 9_000}),
        (EdgeQuery(PHOTO, FEATURES, SETTINGS, "features"), {"features": SIZE}),
        (EdgeQuery(PHOTO, None, SETTINGS, "features"), {"features": 77}),
        (EdgeQuery(PHOTO, FEATURES, SETTINGS, "image"), {"image": 9_000}),
        (EdgeQuery(None, FEATURES, SETTINGS), {"features": SIZE}),
        (EdgeQuery(None, FEATURES, SETTINGS, "image"), {"features": SIZE}),
        (EdgeQuery(PHOTO, None, SETTINGS, "features", asked_again=True), {"image": 9_000}),
    ],
)
def test_the_possible_forms_of_a_query(query: EdgeQuery, forms: dict[str, int]) -> None:
    assert {payload.form: payload.size_bytes for payload in query.payloads(77)} == forms


@pytest.mark.parametrize("forward", ["auto", "features"])
def test_an_edge_that_must_not_compute_forwards_the_image(forward: str) -> None:
    query = EdgeQuery(PHOTO, None, SETTINGS, forward)  # type: ignore[arg-type]
    query.may_work = False
    assert [payload.form for payload in query.payloads(77)] == ["image"]


def test_missing_features_require_an_extraction_with_its_time() -> None:
    query = EdgeQuery(PHOTO, None, SETTINGS)
    query.extraction_ms = 5.0
    assert query.missing("features") == query.missing_features(60) == Extract(60)
    assert query.missing("image") is None
    assert query.payloads(77)[0].before_ms == 5.0
    query.features, query.features_bytes = FEATURES, SIZE
    assert query.missing("features") is query.missing_features(60) is None
    assert query.payloads(77)[0].before_ms == 0.0


@pytest.mark.parametrize(("again", "asked_again"), [(False, False), (True, False), (False, True)])
def test_the_message_states_whether_the_features_were_unknown(again: bool, asked_again: bool) -> None:
    query = EdgeQuery(PHOTO, FEATURES, SETTINGS, asked_again=asked_again)
    request, blobs = query.message("image", again=again)
    assert (list(blobs), request.image.size_bytes) == ([PHOTO], len(PHOTO))
    assert request.image.features_unknown == (again or asked_again)
    request, blobs = query.message("features", again=False)
    assert len(features_from_proto(request.features, blobs)) == 40


def test_a_query_without_content_is_an_internal_error() -> None:
    for form in ("image", "features"):
        with pytest.raises(InternalError):
            EdgeQuery(None, None, SETTINGS).message(form, again=False)


def test_clients_with_the_same_name_are_distinguished_by_their_keys() -> None:
    request, deadline = RecognizeRequest(image=ImageInput()), Deadline.after(1.0, SYSTEM_CLOCK)

    def client(key: str, client_id: str) -> str:
        context = CallContext(deadline, client_id, caller=Caller("a", key), blobs=[memoryview(PHOTO)])
        return EdgeQuery.of(request, context, SETTINGS).client

    assert client("key", "phone") == client("key", "phone")
    assert len({client("key", "phone"), client("other key", "phone"), client("", "phone")}) == 3
    assert client("key", "phone") != client("key", "tablet")
