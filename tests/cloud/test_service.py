from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import cv2
import numpy as np
import pytest

from nearsight.cloud import service
from nearsight.cloud.access import RemoteCatalogue
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.catalogue import answers
from nearsight.common.catalogue.store import CatalogueStore, StoredObject
from nearsight.common.catalogue.training import MAX_IMAGES_PER_OBJECT
from nearsight.common.errors import (
    ImageTooLarge,
    InvalidArgument,
    InvalidImage,
    NearsightError,
    NotFound,
    Overloaded,
)
from nearsight.common.recognition.codec import digest_of_message, model_digest, object_model_from_proto
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.rpc.client import Channel, Reply
from nearsight.common.rpc.server import ServerSettings
from nearsight.protos import catalogue_pb2 as pb
from nearsight.protos.recognition_pb2 import FeaturesMessage, ImageInput, RecognizeRequest
from support.cloud import CloudClient, hold_recognition, running_cloud
from support.pictures import broken_images, photo_jpeg, picture_jpeg
from support.waiting import LONG_S, wait_until


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[CloudDaemon]:
    with running_cloud(tmp_path / "cloud.db") as running:
        yield running


@pytest.fixture
def client(daemon: CloudDaemon) -> Iterator[CloudClient]:
    with CloudClient(daemon.endpoint) as connected:
        yield connected


def pictures(*seeds: int) -> dict[str, list[bytes]]:
    return {f"p{seed}": [picture_jpeg(seed)] for seed in seeds}


def test_an_added_object_is_recognised_immediately(client: CloudClient) -> None:
    added = client.add(pictures(1, 2, 3))
    assert (list(added.added), added.revision) == (["p1", "p2", "p3"], 1)
    response = client.recognize(photo_jpeg(2))
    assert response.object.object_id == "p2"
    assert response.answered_by == "cloud"
    assert len(response.object.corners) == 4
    assert 0 < response.object.confidence <= 1


def test_features_are_recognised_like_their_image(client: CloudClient) -> None:
    client.add(pictures(1, 2))
    features = extract_features(load_image(photo_jpeg(1)), 300)
    assert client.recognize(features).object == client.recognize(photo_jpeg(1)).object


def test_an_image_that_is_unknown_at_first_is_looked_at_again(client: CloudClient) -> None:
    client.add(pictures(1) | {"p2": [picture_jpeg(2, side=240)]})
    rng = np.random.default_rng(1)
    shown = cv2.imdecode(np.frombuffer(photo_jpeg(2, side=240), np.uint8), cv2.IMREAD_GRAYSCALE)
    small = cv2.resize(shown, None, fx=0.9, fy=0.9, interpolation=cv2.INTER_AREA)
    wall = cv2.GaussianBlur(rng.integers(110, 146, (1200, 1600), np.uint8), (0, 0), 1.5)
    wall[400 : 400 + small.shape[0], 600 : 600 + small.shape[1]] = small
    photo = cv2.imencode(".png", wall)[1].tobytes()
    assert not client.recognize(extract_features(load_image(photo), 300)).HasField("object")
    assert client.shown(photo) == "p2"
    assert not client.recognize(photo, one_look=True).HasField("object"), "more photos of it follow"


def test_a_photo_of_something_else_is_unknown(client: CloudClient) -> None:
    client.add(pictures(1, 2))
    response = client.recognize(photo_jpeg(77))
    assert not response.HasField("object")
    assert response.answered_by == "cloud"


@pytest.mark.parametrize("name", ["empty", "truncated", "no image", "bomb"])
def test_a_broken_image_is_a_typed_error_and_the_daemon_lives(client: CloudClient, name: str) -> None:
    client.add(pictures(1))
    with pytest.raises(InvalidArgument) as caught:
        client.recognize(broken_images()[name])
    assert "Traceback" not in str(caught.value)
    assert client.shown(photo_jpeg(1)) == "p1"


def test_requests_that_do_not_fit_together_are_invalid(client: CloudClient) -> None:
    client.add(pictures(1))
    for request, blobs in (
        (RecognizeRequest(), []),
        (RecognizeRequest(image=ImageInput(size_bytes=3)), []),
        (RecognizeRequest(image=ImageInput(size_bytes=3)), [b"1234"]),
        (RecognizeRequest(image=ImageInput(size_bytes=3)), [b"123", b"123"]),
        (RecognizeRequest(features=FeaturesMessage(count=5)), []),
        (RecognizeRequest(features=FeaturesMessage(count=2**31, first_blob=2**31)), [b""]),
    ):
        with pytest.raises(InvalidArgument):
            client._call(client.recognition.recognize, request, blobs)
    assert client.shown(photo_jpeg(1)) == "p1"


def test_the_catalogue_of_the_call_decides(client: CloudClient) -> None:
    client.add(pictures(1))
    client.add(pictures(2), catalogue="shop")
    assert client.recognize(photo_jpeg(2), catalogue="shop").object.object_id == "p2"
    assert not client.recognize(photo_jpeg(2), catalogue="museum").HasField("object")
    with pytest.raises(NotFound, match="musuem") as caught:
        client.recognize(photo_jpeg(2), catalogue="musuem")
    assert "museum, shop" in str(caught.value)
    with pytest.raises(InvalidArgument, match="museum, shop"):
        client.recognize(photo_jpeg(2), catalogue="")


def test_adding_reports_new_replaced_unchanged_and_rejected_objects(client: CloudClient) -> None:
    client.add(pictures(1, 2))
    mixed = {
        "p1": [picture_jpeg(1)],
        "p2": [picture_jpeg(22)],
        "p3": [b"broken", picture_jpeg(3)],
        "p4": [b"broken"],
        "p5": [],
        "p6": [picture_jpeg(6)] * (MAX_IMAGES_PER_OBJECT + 1),
        "bad\n": [picture_jpeg(5)],
    }
    added = client.add(mixed)
    assert (list(added.added), list(added.replaced), list(added.unchanged)) == (["p3"], ["p2"], ["p1"])
    assert [item.object_id for item in added.rejected] == ["p4", "p5", "p6", "bad\n"]
    assert all(item.reason for item in added.rejected)
    assert [(item.object_id, item.image) for item in added.skipped] == [("p3", 0)]
    assert client.shown(photo_jpeg(22)) == "p2"
    assert client.shown(photo_jpeg(2)) is None
    assert client.shown(photo_jpeg(3)) == "p3"


def test_a_call_with_only_rejected_objects_creates_no_catalogue(client: CloudClient) -> None:
    added = client.add({"a": [b"broken"]}, catalogue="typo")
    assert len(added.rejected) == 1
    listed = client._call(client.catalogues.list_catalogues, pb.ListCataloguesRequest()).message
    assert list(listed.catalogues) == []


def test_invalid_calls_are_refused(client: CloudClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="declared"):
        request = pb.AddObjectsRequest(objects=[pb.NewObject(object_id="a", images=2)])
        client._call(client.catalogues.add_objects, request, [picture_jpeg(1)])
    with pytest.raises(InvalidArgument):
        client.add(pictures(1), catalogue="no/such name")
    monkeypatch.setattr(service, "MAX_NEW_OBJECTS", 2)
    with pytest.raises(InvalidArgument, match="limit is 2"):
        client.add(pictures(1, 2, 3))
    monkeypatch.setattr(answers, "MAX_IDS", 2)
    with pytest.raises(InvalidArgument, match="limit is 2"):
        client.models("a", "b", "c")


def test_an_id_twice_in_one_call_counts_once(client: CloudClient) -> None:
    request = pb.AddObjectsRequest(objects=[pb.NewObject(object_id="a", images=1)] * 2)
    blobs = [picture_jpeg(1), picture_jpeg(2)]
    added = client._call(client.catalogues.add_objects, request, blobs).message
    assert list(added.added) == ["a"]
    assert "more than once" in added.rejected[0].reason
    assert client.shown(photo_jpeg(1)) == "a"


def test_an_empty_call_waits_for_deferred_indexing(client: CloudClient) -> None:
    for seed in (1, 2, 3):
        client.add(pictures(seed), index_later=True)
    assert client.add({}).revision == 3
    assert client.shown(photo_jpeg(3)) == "p3"


def test_a_removed_object_is_unknown_when_the_call_returns(client: CloudClient) -> None:
    client.add(pictures(1, 2))
    removed = client.remove("p1", "nothing")
    assert (list(removed.removed), list(removed.missing), removed.revision) == (["p1"], ["nothing"], 2)
    assert client.shown(photo_jpeg(1)) is None
    assert client.shown(photo_jpeg(2)) == "p2"
    with pytest.raises(NotFound):
        client.catalogue = "nowhere"
        client.remove("p1")


def test_lists_contain_what_a_replica_needs(client: CloudClient) -> None:
    client.add({"p2": [picture_jpeg(2), picture_jpeg(3)], "p1": [picture_jpeg(1)]})
    client.add({"p1": [picture_jpeg(11)]})
    listed = client.objects()
    assert [(item.object_id, item.version, item.views) for item in listed.objects] == [
        ("p1", 2, 1),
        ("p2", 1, 2),
    ]
    assert listed.revision == 2
    assert all(item.model_bytes > 1000 and len(item.content_hash) == 32 for item in listed.objects)


def test_listed_digests_match_the_sent_models(client: CloudClient) -> None:
    client.add({"p2": [picture_jpeg(2), picture_jpeg(3)], "p1": [picture_jpeg(1)], "p3": [picture_jpeg(4)]})
    before = {item.object_id: item.model_digest for item in client.objects().objects}
    client.add({"p1": [picture_jpeg(11)]})
    client.remove("p3")
    listed = {item.object_id: item.model_digest for item in client.objects().objects}
    assert listed.keys() == {"p1", "p2"}
    assert (listed["p1"] == before["p1"], listed["p2"] == before["p2"]) == (False, True)
    reply = client.models("p1", "p2")
    for message in reply.message.models:
        model = object_model_from_proto(message, reply.blobs)
        assert digest_of_message(message, reply.blobs) == model_digest(model) == listed[model.object_id]


def test_a_stored_version_without_a_served_model_has_no_digest(
    client: CloudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.add(pictures(1))
    stored = CatalogueStore.objects

    def ahead(store: CatalogueStore, catalogue: str) -> list[StoredObject]:
        return [replace(item, version=item.version + 1) for item in stored(store, catalogue)]

    monkeypatch.setattr(CatalogueStore, "objects", ahead)
    (item,) = client.objects().objects
    assert (item.version, item.model_digest) == (2, b"")


def test_sent_models_recognise_the_same_objects_elsewhere(client: CloudClient) -> None:
    client.add(pictures(1, 2, 3))
    reply = client.models("p3", "nothing", "p1", "p3")
    assert [model.object_id for model in reply.message.models] == ["p3", "p1"]
    assert list(reply.message.missing) == ["nothing"]
    assert reply.message.revision == 1
    models = [object_model_from_proto(message, reply.blobs) for message in reply.message.models]
    features = extract_features(load_image(photo_jpeg(3)), 300)
    found = ObjectRecognizer.build(models).recognize(features).found
    assert found is not None
    assert found.object_id == "p3"


def test_models_that_exceed_one_response_are_omitted_and_listed(tmp_path: Path) -> None:
    # Half a message holds two of these models: each is about 300 x 38 bytes.
    server = ServerSettings(
        listen="tcp://127.0.0.1:0", workers=2, queue_timeout_s=LONG_S, max_message_bytes=64 * 1024
    )
    with (
        running_cloud(tmp_path / "cloud.db", server=server) as daemon,
        CloudClient(daemon.endpoint) as client,
    ):
        for seed in range(5):
            client.add(pictures(seed))
        wanted = [f"p{seed}" for seed in range(5)]
        got: list[str] = []
        while wanted:
            response = client.models(*wanted).message
            got += [model.object_id for model in response.models]
            wanted = list(response.left_out)
            assert 1 <= len(response.models) < 5
        assert got == [f"p{seed}" for seed in range(5)]


def ask(client: CloudClient, photo: bytes) -> Future[Reply]:
    request = RecognizeRequest(image=ImageInput(size_bytes=len(photo)))
    return client.recognition.recognize.future(request, timeout_s=LONG_S, blobs=[photo], catalogue="museum")


def test_model_requests_do_not_wait_behind_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With models, an edge sends fewer photos."""
    server = ServerSettings(listen="tcp://127.0.0.1:0", workers=1, queue_timeout_s=LONG_S)
    with (
        running_cloud(tmp_path / "cloud.db", server=server) as daemon,
        CloudClient(daemon.endpoint) as client,
    ):
        client.add(pictures(1))
        held, release = hold_recognition(monkeypatch)
        photos = [ask(client, photo_jpeg(1)) for _ in range(3)]
        assert held.wait(LONG_S)
        assert [model.object_id for model in client.models("p1").message.models] == ["p1"]
        assert not any(future.done() for future in photos)
        release.set()
        assert all(future.result(LONG_S).message.object.object_id == "p1" for future in photos)


def test_an_overloaded_cloud_answers_every_request_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerSettings(listen="tcp://127.0.0.1:0", workers=1, queue_limit=8, queue_timeout_s=LONG_S)
    with (
        running_cloud(tmp_path / "cloud.db", server=server) as daemon,
        CloudClient(daemon.endpoint) as client,
    ):
        client.add(pictures(1, 2))
        held, release = hold_recognition(monkeypatch)
        flood = [ask(client, photo_jpeg(2)) for _ in range(300)]
        assert held.wait(LONG_S)
        wait_until(lambda: any(future.done() for future in flood), what="a refusal")
        release.set()
        errors = [future.exception(LONG_S) for future in flood]
        served = [future for future, error in zip(flood, errors, strict=True) if error is None]
        assert {future.result().message.object.object_id for future in served} == {"p2"}
        assert all(isinstance(error, Overloaded) for error in errors if error is not None)
        assert len(served) < len(flood)
        with CloudClient(daemon.endpoint) as another:  # the first client pauses after a refusal
            assert another.shown(photo_jpeg(1)) == "p1"


def test_typed_errors_keep_their_type_over_the_wire(client: CloudClient) -> None:
    client.add(pictures(1))
    with pytest.raises(NearsightError) as caught:
        client.recognize(b"no image")
    assert isinstance(caught.value, InvalidArgument)
    assert not isinstance(caught.value, InvalidImage | ImageTooLarge), "codes travel, not Python classes"


def test_commands_wait_minutes_for_the_index_of_a_large_catalogue() -> None:
    channel = Mock(spec=Channel)
    catalogue = RemoteCatalogue(channel, "museum")
    channel.ask.return_value = Reply(pb.AddObjectsResponse(), (), (), 0, 0)
    catalogue.finish()
    channel.ask.return_value = Reply(pb.RemoveObjectsResponse(), (), (), 0, 0)
    catalogue.remove(["a"])
    assert [call.kwargs["timeout_s"] >= 600 for call in channel.ask.call_args_list] == [True, True]
