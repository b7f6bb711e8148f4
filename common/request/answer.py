"""Answers of a tier, the same for every grain of caching, and what the asking tier learns from them."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.errors import InternalError, InvalidMessage, StatusCode
from nearsight.common.recognition.codec import recognized_object_from_proto
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.call import Reply
from nearsight.common.rpc.envelope import Hop
from nearsight.protos.recognition_pb2 import RecognizeResponse

OBJECT = "object"
"""The grain of the object cache and of a whole catalogue: models of single objects."""
RESULT = "result"
"""The grain of the result cache: the answer to an earlier, nearly identical photo."""
NETWORK = "network"
"""The grain of a whole network: the label of a class."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of recognising a photo, with its origin and costs."""

    found: RecognizedObject | None
    """Label, id, version, confidence, metadata, and corners if available; None: unknown."""
    answered_by: str
    """Tier that recognised the object: "device", "edge" or "cloud"."""
    grain: str = OBJECT
    """Grain of the cache that answered: `OBJECT`, `RESULT` or `NETWORK`."""
    hops: tuple[Hop, ...] = ()
    """Time and bytes that each tier spent, the answering tier first."""
    sent_bytes: int = 0
    received_bytes: int = 0
    """Bytes sent to and received from the next tier."""


def answer_of(reply: Reply, tier: str, sent_bytes: int) -> tuple[Answer, RecognizeResponse]:
    """Decode the response of a tier; returns the answer and the message.

    Raises
    ------
    InternalError
        If the response is not valid. This is not a fault of the caller, so another tier may be asked.
    """
    message = reply.message
    if not isinstance(message, RecognizeResponse):
        raise InternalError(f"the {tier} answered with a {type(message).__name__}")
    found = None
    if message.HasField("object"):
        try:
            found = recognized_object_from_proto(message.object)
        except InvalidMessage as error:
            raise InternalError(f"the {tier} sent an invalid answer: {error.message}") from error
    answered_by, grain = message.answered_by or tier, message.grain or OBJECT
    return Answer(found, answered_by, grain, reply.hops, sent_bytes, reply.received_bytes), message


@dataclass(frozen=True, slots=True)
class Attempt:
    """One tier that was asked in a request.

    Attributes
    ----------
    tier : str
        Name of the tier: "edge" or "cloud".
    outcome : StatusCode
        OK, or the error of the tier.
    elapsed_ms : float
        From sending the question to the answer or failure.
    """

    tier: str
    outcome: StatusCode
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """Measurements that an answer of the next tier provides, in addition to its content."""

    tier: str
    """The tier that was asked."""
    unknown: bool
    """Whether the features of the photo were unknown, even if the image sent afterwards was recognised."""
    round_trip_ms: float
    """From the last message to its answer [ms]."""
    first_ms: float
    """From the decision to ask to the first answer, including the time to make the form that is sent [ms]."""
    waited_ms: float
    """From the question to the last answer [ms]."""
    complete: bool
    """False if a second message was sent but not answered."""
    hop: Hop
    """Time and bytes reported by the asked tier in the last answer."""
