"""Transmission of predictions; invalid messages are refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.object_cache.next_objects import (
    MAX_NEXT_OBJECTS,
    NextObjects,
    next_objects_from_proto,
    next_objects_to_proto,
)
from nearsight.protos.recognition_pb2 import NextObjectsMessage


def test_top_adds_the_probabilities_of_other_objects_to_the_remainder() -> None:
    first = NextObjects(("a", "b"), np.array([0.5, 0.3])).top(1)
    assert (first.object_ids, first.remaining) == (("a",), 0.5)


def test_without_adds_the_probabilities_of_excluded_objects_to_the_remainder() -> None:
    three = NextObjects(("a", "b", "c"), np.array([0.5, 0.25, 0.125]))
    left = three.without({"b", "x"})
    assert (left.object_ids, left.probabilities.tolist(), left.remaining) == (("a", "c"), [0.5, 0.125], 0.375)
    assert three.without({"x"}) is three


@pytest.mark.parametrize(
    ("object_ids", "probabilities"),
    [
        (("a",), [0.5, 0.5]),
        (("a", "a"), [0.5, 0.5]),
        (("a", "b"), [0.3, 0.7]),
        (("a",), [-0.5]),
        (("a",), [np.nan]),
        (("a",), [1.5]),
    ],
)
def test_an_invalid_distribution_is_refused(object_ids: tuple[str, ...], probabilities: list[float]) -> None:
    with pytest.raises(InvalidArgument):
        NextObjects(object_ids, np.array(probabilities))


def following(weights: list[float]) -> NextObjects:
    """A PDF with these weights, which must not all be 0."""
    p = np.sort(np.array([*weights, 1.0]) / (sum(weights) + 1.0))[::-1]
    names = tuple(f"object {number}" for number in range(len(p) - 1))
    return NextObjects(names, p[:-1].copy())


@given(st.lists(st.floats(0, 1000), max_size=50), st.integers(0, 2**40))
def test_a_prediction_is_unchanged_after_transmission(weights: list[float], revision: int) -> None:
    original = following(weights)
    message = NextObjectsMessage.FromString(next_objects_to_proto(original, revision).SerializeToString())
    read = next_objects_from_proto(message)
    assert (read.object_ids, message.revision) == (original.object_ids, revision)
    assert np.array_equal(read.probabilities, original.probabilities)
    assert read.remaining == original.remaining


def test_a_long_prediction_is_cut_to_its_most_probable_objects() -> None:
    message = next_objects_to_proto(following([1.0] * (2 * MAX_NEXT_OBJECTS)), 1)
    assert len(next_objects_from_proto(message)) == MAX_NEXT_OBJECTS
    assert message.remaining == pytest.approx(0.5, abs=0.01)


def test_an_empty_prediction_has_all_probability_in_the_remainder() -> None:
    assert next_objects_from_proto(next_objects_to_proto(NextObjects.nothing(), 0)).remaining == 1.0


@pytest.mark.parametrize(
    "message",
    [
        NextObjectsMessage(object_ids=["a", ""], probabilities=[0.5, 0.5]),
        NextObjectsMessage(object_ids=["a"], probabilities=[math.nan], remaining=0.5),
        NextObjectsMessage(object_ids=["a"], probabilities=[0.7], remaining=0.7),
        NextObjectsMessage(object_ids=["a"], probabilities=[0.5], remaining=math.nan),
        NextObjectsMessage(),
        NextObjectsMessage(
            object_ids=map(str, range(MAX_NEXT_OBJECTS + 1)),
            probabilities=[1 / (MAX_NEXT_OBJECTS + 1)] * (MAX_NEXT_OBJECTS + 1),
        ),
    ],
    ids=["no id", "no distribution", "over 1", "nan rest", "empty", "too many"],
)
def test_a_message_with_an_invalid_distribution_is_refused(message: NextObjectsMessage) -> None:
    with pytest.raises(InvalidMessage):
        next_objects_from_proto(message)
