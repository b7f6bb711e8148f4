"""Predictions and decisions survive the wire, and nonsense from strangers is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidMessage
from nearsight.common.object_cache.codec import (
    MAX_NEXT_OBJECTS,
    explanation_from_proto,
    explanation_to_proto,
    next_objects_from_proto,
    next_objects_to_proto,
)
from nearsight.common.object_cache.expected_latency import Explanation, LatencyTerms
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.protos.explanation_pb2 import ExplainedDecision, LatencyTermsMessage
from nearsight.protos.recognition_pb2 import NextObjectsMessage

TERMS = LatencyTerms(3, 12.5, 0.9, 0.4, 120.0, 89.3, 400)


def following(weights: list[float]) -> NextObjects:
    """A PDF with these weights, which must not all be 0."""
    p = np.sort(np.array([*weights, 1.0]) / (sum(weights) + 1.0))[::-1]
    names = tuple(f"object {number}" for number in range(len(p) - 1))
    return NextObjects(names, p[:-1].copy(), float(p[-1]))


@given(st.lists(st.floats(0, 1000), max_size=50), st.integers(0, 2**40))
def test_a_prediction_survives_the_wire(weights: list[float], revision: int) -> None:
    original = following(weights)
    message = NextObjectsMessage.FromString(next_objects_to_proto(original, revision).SerializeToString())
    read = next_objects_from_proto(message)
    assert (read.object_ids, message.revision) == (original.object_ids, revision)
    assert np.array_equal(read.probabilities, original.probabilities)
    assert read.remaining == original.remaining


def test_a_prediction_that_is_too_long_is_cut_to_its_head() -> None:
    message = next_objects_to_proto(following([1.0] * (2 * MAX_NEXT_OBJECTS)), 1)
    assert len(next_objects_from_proto(message)) == MAX_NEXT_OBJECTS
    assert message.remaining == pytest.approx(0.5, abs=0.01)


def test_no_prediction_means_that_anything_may_come() -> None:
    assert next_objects_from_proto(next_objects_to_proto(NextObjects.nothing(), 0)).remaining == 1.0


@pytest.mark.parametrize(
    "message",
    [
        NextObjectsMessage(object_ids=["a"], remaining=1.0),
        NextObjectsMessage(object_ids=["a", "a"], probabilities=[0.5, 0.5]),
        NextObjectsMessage(object_ids=["a", ""], probabilities=[0.5, 0.5]),
        NextObjectsMessage(object_ids=["a", "b"], probabilities=[0.4, 0.6]),
        NextObjectsMessage(object_ids=["a"], probabilities=[math.nan], remaining=0.5),
        NextObjectsMessage(object_ids=["a"], probabilities=[0.5], remaining=math.nan),
        NextObjectsMessage(object_ids=["a"], probabilities=[1.5], remaining=-0.5),
        NextObjectsMessage(object_ids=["a"], probabilities=[-0.5], remaining=1.5),
        NextObjectsMessage(),
        NextObjectsMessage(
            object_ids=map(str, range(MAX_NEXT_OBJECTS + 1)),
            probabilities=[1 / (MAX_NEXT_OBJECTS + 1)] * (MAX_NEXT_OBJECTS + 1),
        ),
    ],
    ids=["lengths", "twice", "no id", "rising", "nan", "nan rest", "over 1", "negative", "empty", "too many"],
)
def test_what_is_no_distribution_is_refused(message: NextObjectsMessage) -> None:
    with pytest.raises(InvalidMessage):
        next_objects_from_proto(message)


def test_a_decision_survives_the_wire_with_its_alternatives() -> None:
    others = (replace(TERMS, k=0, features=200), replace(TERMS, k=4))
    facts = (("regret", "+1 %"), ("load", "none"))
    original = Explanation("museum", 3.0, TERMS, others, 20, "because", ("a", "b", "c"), facts)
    assert explanation_from_proto(explanation_to_proto(original)) == original


@pytest.mark.parametrize(
    ("field", "value"),
    [("lookup_ms", math.nan), ("miss_ms", -1.0), ("expected_ms", math.inf), ("recall", 1.5)],
)
def test_a_decision_with_impossible_numbers_is_refused(field: str, value: float) -> None:
    message = explanation_to_proto(Explanation("museum", 0.0, TERMS))
    setattr(message.chosen, field, value)
    with pytest.raises(InvalidMessage, match=field):
        explanation_from_proto(message)


def test_a_decision_without_a_choice_or_from_the_future_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="chosen"):
        explanation_from_proto(ExplainedDecision())
    with pytest.raises(InvalidMessage, match="old"):
        explanation_from_proto(ExplainedDecision(chosen=LatencyTermsMessage(), age_s=-1))
