"""The digest of a model: the same after every trip, another for every other model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidMessage
from nearsight.common.recognition.codec import (
    object_model_from_bytes,
    object_model_from_proto,
    object_model_to_bytes,
    object_model_to_proto,
)
from nearsight.common.recognition.digest import DIGEST_BYTES, digest_of_message, model_digest
from nearsight.common.recognition.models import ObjectModel
from support.gallery import exhibit_model
from support.objects import random_features, random_model


def travelled(model: ObjectModel) -> ObjectModel:
    return object_model_from_proto(*object_model_to_proto(model, 0))


def test_it_survives_network_and_store_also_of_a_model_that_was_just_trained() -> None:
    model = exhibit_model(0)
    digest = model_digest(model)
    assert len(digest) == DIGEST_BYTES
    assert model_digest(travelled(model)) == digest
    assert model_digest(travelled(travelled(model))) == digest
    assert model_digest(object_model_from_bytes(object_model_to_bytes(model))) == digest


@given(seed=st.integers(0, 100), views=st.integers(1, 3), before=st.integers(0, 5))
def test_where_the_blobs_lie_in_the_call_plays_no_role(seed: int, views: int, before: int) -> None:
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


def test_text_that_moves_from_one_field_to_the_next_changes_it() -> None:
    model = random_model("a")
    first, second = replace(model, label="bc"), replace(model, object_id="ab", label="c")
    assert model_digest(first) != model_digest(second)
    first, second = replace(model, metadata={"d": "ef"}), replace(model, metadata={"de": "f"})
    assert model_digest(first) != model_digest(second)


def test_a_model_without_its_blobs_has_none() -> None:
    message, blobs = object_model_to_proto(random_model("a"), 0)
    with pytest.raises(InvalidMessage):
        digest_of_message(message, blobs[:-1])
