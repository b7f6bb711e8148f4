"""Conversion to messages and back: exact for valid values, typed errors for invalid messages."""

import pickle
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.errors import CorruptStore, InvalidArgument, InvalidMessage
from nearsight.common.recognition.codec import (
    DIGEST_BYTES,
    MAX_FEATURES,
    digest_of_message,
    features_from_proto,
    features_to_proto,
    model_digest,
    object_model_from_bytes,
    object_model_from_proto,
    object_model_to_bytes,
    object_model_to_proto,
    recognized_object_from_proto,
    recognized_object_to_proto,
)
from nearsight.common.recognition.models import TWIN, Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.protos.catalogue_pb2 import ObjectModelMessage
from nearsight.protos.recognition_pb2 import FeaturesMessage, Point, RecognizedObjectMessage
from support.gallery import exhibit_model, photo_features
from support.objects import random_features, random_model, same_model

ANSWER = RecognizedObject(
    "a", "A", 3, 0.5, 17, ((0.0, -1.5), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0)), {"year": "1901"}
)


def equal(first: Features, second: Features) -> bool:
    return same_model(ObjectModel("x", "", (first,)), ObjectModel("x", "", (second,)))


def test_extracted_features_are_transmitted_without_loss() -> None:
    features = photo_features(0)
    message, blobs = features_to_proto(features, first_blob=2)
    arrived = FeaturesMessage.FromString(message.SerializeToString())
    assert equal(features_from_proto(arrived, [b"", b"", *map(memoryview, blobs)]), features)
    assert sum(map(len, blobs)) == len(features) * (4 + 32 + 2)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 60))
def test_features_on_the_grid_are_transmitted_without_loss(seed: int, count: int) -> None:
    features = random_features(seed, count)
    assert equal(features_from_proto(*features_to_proto(features, 0)), features)


def test_keypoints_beyond_the_range_of_the_wire_format_are_refused() -> None:
    few = random_features(1, 2)
    for keypoints, size in (
        (few.keypoints - 700, (640, 640)),
        (few.keypoints + 3000, (640, 640)),
        (few.keypoints, (4000, 10)),
    ):
        with pytest.raises(InvalidArgument, match="2047"):
            features_to_proto(Features(keypoints, few.descriptors, few.strengths, size, size), 0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"count": 39}, "bytes, expected"),
        ({"count": 41}, "bytes, expected"),
        ({"count": MAX_FEATURES + 1}, "limit"),
        ({"count": 2**32 - 1}, "limit"),
        ({"first_blob": 1}, "bytes, expected"),
        ({"first_blob": 3}, "missing"),
        ({"first_blob": 2**32 - 1}, "missing"),
        ({"image_width": 0}, "image size"),
        ({"image_height": 2048}, "image size"),
        ({"source_width": 0}, "source size"),
        ({"source_height": 2**32 - 1}, "source size"),
        ({"image_width": 5}, "outside"),
    ],
)
def test_inconsistent_numbers_in_a_message_are_refused(changes: dict[str, int], complaint: str) -> None:
    message, blobs = features_to_proto(random_features(1, 40), 0)
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(InvalidMessage, match=complaint):
        features_from_proto(message, blobs)


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
def test_strengths_that_are_not_finite_are_refused(bits: int) -> None:
    message, blobs = features_to_proto(random_features(1, 40), 0)
    with pytest.raises(InvalidMessage, match="finite"):
        features_from_proto(message, [blobs[0], blobs[1], struct.pack("<H", bits) + blobs[2][2:]])


def test_a_model_is_transmitted_with_all_its_views() -> None:
    model = random_model("a", views=3)
    message, blobs = object_model_to_proto(model, first_blob=1)
    arrived = ObjectModelMessage.FromString(message.SerializeToString())
    assert same_model(object_model_from_proto(arrived, [b"", *blobs]), model)
    assert object_model_from_proto(arrived, [b"", *blobs]).version == model.version


def test_rivals_are_transmitted_stored_and_part_of_the_digest() -> None:
    without = random_model("a")
    model = replace(without, rivals={"b": 14, "c": TWIN})
    message, blobs = object_model_to_proto(model, 0)
    assert object_model_from_proto(message, blobs).rivals == {"b": 14, "c": TWIN}
    assert object_model_from_bytes(object_model_to_bytes(model)).rivals == {"b": 14, "c": TWIN}
    digests = {model_digest(replace(without, rivals=rivals)) for rivals in ({}, {"b": 14}, {"b": 15})}
    assert len(digests) == 3


def test_a_model_without_id_or_view_or_features_is_refused() -> None:
    for message in (ObjectModelMessage(), ObjectModelMessage(object_id="a")):
        with pytest.raises(InvalidMessage):
            object_model_from_proto(message, [])
    message, blobs = object_model_to_proto(random_model("a", views=2), 0)
    with pytest.raises(InvalidMessage, match="missing"):
        object_model_from_proto(message, blobs[:-1])


def test_an_answer_is_unchanged_after_transmission() -> None:
    message = recognized_object_to_proto(ANSWER)
    assert (
        recognized_object_from_proto(RecognizedObjectMessage.FromString(message.SerializeToString()))
        == ANSWER
    )


def test_metadata_are_sorted_by_key() -> None:
    metadata = dict.fromkeys(("year", "artist", "technique", "room", "gift", "loan"), "x")
    found = RecognizedObject("a", "A", 1, 0.5, 20, None, metadata)
    model = replace(exhibit_model(1), metadata=metadata)
    answer = recognized_object_from_proto(recognized_object_to_proto(found))
    stored = object_model_from_bytes(object_model_to_bytes(model))
    assert list(answer.metadata) == list(stored.metadata) == sorted(metadata)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        *(({"confidence": value}, "confidence") for value in (0.0, -1.0, 1.1, float("nan"))),
        ({"object_id": ""}, "object id"),
        ({"corners": [Point(x=1, y=1)] * 3}, "corners"),
        ({"corners": [Point(x=float("inf"), y=1)] * 4}, "corners"),
    ],
)
def test_an_impossible_answer_is_refused(change: dict[str, object], complaint: str) -> None:
    message = recognized_object_to_proto(ANSWER)
    for name in change:
        message.ClearField(name)
    message.MergeFrom(RecognizedObjectMessage(**change))
    with pytest.raises(InvalidMessage, match=complaint):
        recognized_object_from_proto(message)


def test_a_stored_model_is_read_unchanged() -> None:
    for model in (exhibit_model(0), random_model("ä/b", views=2), random_model("c", count=0)):
        stored = object_model_to_bytes(model)
        assert same_model(object_model_from_bytes(stored), model)
        assert object_model_to_bytes(model) == stored


@settings(max_examples=200)
@given(st.data())
def test_any_damage_to_a_stored_model_is_detected(data: st.DataObject) -> None:
    stored = object_model_to_bytes(random_model("a"))
    if data.draw(st.booleans()):
        damaged = stored[: data.draw(st.integers(0, len(stored) - 1))]
    else:
        position, bit = data.draw(st.integers(0, len(stored) - 1)), data.draw(st.integers(0, 7))
        damaged = stored[:position] + bytes([stored[position] ^ 1 << bit]) + stored[position + 1 :]
    with pytest.raises(CorruptStore):
        object_model_from_bytes(damaged)


@settings(max_examples=200)
@given(st.binary(max_size=120), st.lists(st.binary(max_size=80), max_size=6))
def test_random_messages_and_blobs_give_a_value_or_a_typed_error(data: bytes, blobs: list[bytes]) -> None:
    for kind, decode in (
        (FeaturesMessage, features_from_proto),
        (ObjectModelMessage, object_model_from_proto),
    ):
        message = kind()
        try:
            message.ParseFromString(data)
        except Exception:  # noqa: BLE001  the RPC layer handles errors of protobuf
            continue
        try:
            decode(message, blobs)  # type: ignore[operator]
        except InvalidArgument as error:
            assert isinstance(error, InvalidMessage)


def test_models_and_features_can_be_pickled() -> None:
    model = random_model("a", views=2)
    assert same_model(pickle.loads(pickle.dumps(model)), model)


def test_decoded_descriptors_are_not_copied() -> None:
    message, blobs = features_to_proto(random_features(1, 40), 0)
    decoded = features_from_proto(message, blobs)
    assert np.shares_memory(decoded.descriptors, np.frombuffer(blobs[1], np.uint8))


def travelled(model: ObjectModel) -> ObjectModel:
    return object_model_from_proto(*object_model_to_proto(model, 0))


def test_the_digest_is_unchanged_by_transmission_and_storage() -> None:
    model = exhibit_model(0)
    digest = model_digest(model)
    assert len(digest) == DIGEST_BYTES
    assert model_digest(travelled(model)) == digest
    assert model_digest(travelled(travelled(model))) == digest
    assert model_digest(object_model_from_bytes(object_model_to_bytes(model))) == digest


@given(seed=st.integers(0, 100), views=st.integers(1, 3), before=st.integers(0, 5))
def test_the_digest_does_not_depend_on_the_position_of_the_blobs(seed: int, views: int, before: int) -> None:
    model = random_model("a", seed, views=views)
    message, blobs = object_model_to_proto(model, before)
    assert digest_of_message(message, [b"other"] * before + blobs) == model_digest(model)


def _other_descriptor(model: ObjectModel) -> ObjectModel:
    (view, *others) = model.views
    descriptors = view.descriptors.copy()
    descriptors[-1, -1] ^= 1
    return replace(model, views=(replace(view, descriptors=descriptors), *others))


def _other_keypoint(model: ObjectModel) -> ObjectModel:
    (view, *others) = model.views
    keypoints = view.keypoints + np.float32(1 / 32)
    return replace(model, views=(replace(view, keypoints=keypoints), *others))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: replace(model, object_id="b"),
        lambda model: replace(model, label="another"),
        lambda model: replace(model, version=2),
        lambda model: replace(model, metadata={"artist": "another"}),
        lambda model: replace(model, metadata={}),
        lambda model: replace(model, views=model.views[:1]),
        lambda model: replace(model, views=model.views[::-1]),
        lambda model: replace(model, views=(*model.views, random_features(9))),
        lambda model: replace(model, views=(replace(model.views[0], source_size=(9, 9)), *model.views[1:])),
        _other_descriptor,
        _other_keypoint,
    ],
)
def test_any_other_model_has_another_digest(change: Callable[[ObjectModel], ObjectModel]) -> None:
    model = random_model("a", views=2)
    assert model_digest(change(model)) != model_digest(model)


def test_text_that_moves_to_another_field_changes_the_digest() -> None:
    model = random_model("a")
    first, second = replace(model, label="bc"), replace(model, object_id="ab", label="c")
    assert model_digest(first) != model_digest(second)
    first, second = replace(model, metadata={"d": "ef"}), replace(model, metadata={"de": "f"})
    assert model_digest(first) != model_digest(second)


def test_a_message_without_all_blobs_has_no_digest() -> None:
    message, blobs = object_model_to_proto(random_model("a"), 0)
    with pytest.raises(InvalidMessage):
        digest_of_message(message, blobs[:-1])
