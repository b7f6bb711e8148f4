"""Predictions and decisions as messages, and back.

The only place where caching meets protobuf. What comes in was written by strangers: every ``from`` function
checks it before it is believed.
"""

from __future__ import annotations

import math

import numpy as np

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.object_cache.expected_latency import Explanation, LatencyTerms
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.protos.explanation_pb2 import ExplainedDecision, Fact, LatencyTermsMessage
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MAX_NEXT_OBJECTS = 4096
"""Most objects that a message may list as next; edges send tens."""

_ROUNDING = 1e-6


def next_objects_to_proto(following: NextObjects, revision: int) -> NextObjectsMessage:
    """The message of a PDF, as of this revision of the catalogue; the unlikely rest is cut off."""
    listed = following.top(MAX_NEXT_OBJECTS) if len(following) > MAX_NEXT_OBJECTS else following
    return NextObjectsMessage(
        object_ids=listed.object_ids,
        probabilities=listed.probabilities.tolist(),
        remaining=max(0.0, listed.remaining),
        revision=revision,
    )


def next_objects_from_proto(message: NextObjectsMessage) -> NextObjects:
    """The PDF of a message; its revision stays with the message.

    Raises
    ------
    InvalidMessage
        If there are too many objects, one without an id, or numbers that are no distribution.
    """
    count = len(message.object_ids)
    if count > MAX_NEXT_OBJECTS:
        raise InvalidMessage(f"{count} next objects, the limit is {MAX_NEXT_OBJECTS}")
    if not all(message.object_ids):
        raise InvalidMessage("next objects: an object without an id")
    probabilities = np.array(message.probabilities, dtype=np.float64)
    try:
        return NextObjects(tuple(message.object_ids), probabilities, message.remaining)
    except InvalidArgument as error:
        raise InvalidMessage(f"next objects: {error.message}") from error


def explanation_to_proto(explanation: Explanation) -> ExplainedDecision:
    """The message of an explained decision."""
    return ExplainedDecision(
        catalogue=explanation.catalogue,
        age_s=explanation.age_s,
        chosen=_terms_to_proto(explanation.chosen),
        alternatives=[_terms_to_proto(terms) for terms in explanation.alternatives],
        k_max=explanation.k_max,
        why=explanation.why,
        object_ids=explanation.object_ids,
        facts=[Fact(name=name, value=value) for name, value in explanation.facts],
    )


def explanation_from_proto(message: ExplainedDecision) -> Explanation:
    """The explained decision of a message.

    Raises
    ------
    InvalidMessage
        If there is no chosen point, or a number is not finite or out of its range.
    """
    if not message.HasField("chosen"):
        raise InvalidMessage("an explained decision without what was chosen")
    if not 0 <= message.age_s < math.inf:
        raise InvalidMessage(f"a decision cannot be {message.age_s} s old")
    return Explanation(
        message.catalogue,
        message.age_s,
        _terms_from_proto(message.chosen),
        tuple(_terms_from_proto(terms) for terms in message.alternatives),
        message.k_max,
        message.why,
        tuple(message.object_ids),
        tuple((fact.name, fact.value) for fact in message.facts),
    )


def _terms_to_proto(terms: LatencyTerms) -> LatencyTermsMessage:
    return LatencyTermsMessage(
        k=terms.k,
        features=terms.features,
        lookup_ms=terms.lookup_ms,
        recall=terms.recall,
        cached_probability=terms.cached_probability,
        miss_ms=terms.miss_ms,
        expected_ms=terms.expected_ms,
    )


def _terms_from_proto(message: LatencyTermsMessage) -> LatencyTerms:
    for name in ("lookup_ms", "miss_ms", "expected_ms"):
        if not 0 <= getattr(message, name) < math.inf:
            raise InvalidMessage(f"{name} must be finite and not negative, got {getattr(message, name)}")
    for name in ("recall", "cached_probability"):
        if not 0 <= getattr(message, name) <= 1 + _ROUNDING:
            raise InvalidMessage(f"{name} must be in [0, 1], got {getattr(message, name)}")
    return LatencyTerms(
        message.k,
        message.lookup_ms,
        message.recall,
        message.cached_probability,
        message.miss_ms,
        message.expected_ms,
        message.features,
    )
