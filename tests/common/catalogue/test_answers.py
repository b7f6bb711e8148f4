"""Decoding of answers of a Catalogue service, including invalid ones."""

from google.protobuf.message import Message

from nearsight.common.catalogue.answers import Listing, listing_of, models_of
from nearsight.common.recognition.codec import object_model_to_proto
from nearsight.common.rpc.client import Reply
from nearsight.protos import catalogue_pb2 as pb
from support.objects import random_model, same_model


def reply_of(message: Message, blobs: list[bytes] | None = None) -> Reply:
    return Reply(message, tuple(map(memoryview, blobs or [])), (), 10, 20)


def models_reply(*names: str, missing: tuple[str, ...] = (), left_out: tuple[str, ...] = ()) -> Reply:
    response = pb.GetObjectModelsResponse(missing=missing, left_out=left_out, revision=7)
    blobs: list[bytes] = []
    for name in names:
        message, added = object_model_to_proto(random_model(name), len(blobs))
        response.models.append(message)
        blobs += added
    return reply_of(response, blobs)


def test_models_arrive_as_they_were_sent() -> None:
    fetched = models_of(models_reply("a", "b", missing=("c",)), ("a", "b", "c"))
    assert [model.object_id for model in fetched.models] == ["a", "b"]
    assert same_model(fetched.models[0], random_model("a"))
    assert (fetched.missing, fetched.revision, fetched.size_bytes) == (("c",), 7, 20)


def test_only_requested_models_count_and_those_that_are_neither_sent_nor_left_out_are_missing() -> None:
    fetched = models_of(models_reply("a", "intruder", left_out=("b",)), ("a", "b", "c"))
    assert [model.object_id for model in fetched.models] == ["a"]
    assert (fetched.left_out, fetched.missing) == (("b",), ("c",))


def test_a_malformed_model_does_not_affect_the_others() -> None:
    reply = models_reply("a", "b")
    reply.message.models[0].views[0].count += 1
    fetched = models_of(reply, ("a", "b"))
    assert [model.object_id for model in fetched.models] == ["b"]
    assert set(fetched.unreadable) == {"a"}
    assert fetched.missing == ()


def test_a_listing_has_versions_revision_and_size() -> None:
    objects = [pb.ObjectSummary(object_id="b", version=2), pb.ObjectSummary(object_id="a", version=1)]
    listing = listing_of(reply_of(pb.ListObjectsResponse(objects=objects, revision=5)))
    assert listing == Listing({"b": 2, "a": 1}, 5, tuple(objects), size_bytes=20)
    assert list(listing.versions) == ["b", "a"], "the catalogue's order"
