"""What a tier answers, the same for every grain of caching, and what the tier that asked learns from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearsight.common.errors import InternalError, InvalidMessage, StatusCode
from nearsight.common.recognition.codec import recognized_object_from_proto
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.call import Reply
from nearsight.common.rpc.envelope import Hop
from nearsight.protos.recognition_pb2 import RecognizeResponse

OBJECT = "object"
"""The grain of the object cache, and of a whole catalogue: models of single objects."""
RESULT = "result"
"""The grain of the result cache: an answer to an earlier photo that was nearly the same."""
NETWORK = "network"
"""The grain of a whole network, which names one of its classes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found in a photo, and by whom."""

    found: RecognizedObject | None
    """Label, id, version, confidence, metadata, and corners where there are any; None: unknown."""
    answered_by: str
    """The tier whose recognition this is: "device", "edge" or "cloud"."""
    grain: str = OBJECT
    """What it was found in: "object" for models of objects, "result" for the answer to an earlier photo,
    "network" for a network that classifies."""
    hops: tuple[Hop, ...] = ()
    """What each tier spent, the answering tier first."""
    sent_bytes: int = 0
    received_bytes: int = 0
    """Between the tier that asked and the next one."""

    def after(self, first: Answer) -> Answer:
        """The answer to a second message, with the bytes of both."""
        return replace(
            self,
            sent_bytes=first.sent_bytes + self.sent_bytes,
            received_bytes=first.received_bytes + self.received_bytes,
        )


def answer_of(reply: Reply, tier: str, sent_bytes: int) -> tuple[Answer, RecognizeResponse]:
    """What a tier answered, and its message.

    Raises
    ------
    InternalError
        If it makes no sense. That is not the caller's fault: another tier may answer properly.
    """
    message = reply.message
    if not isinstance(message, RecognizeResponse):
        raise InternalError(f"the {tier} answered with a {type(message).__name__}")
    found = None
    if message.HasField("object"):
        try:
            found = recognized_object_from_proto(message.object)
        except InvalidMessage as error:
            raise InternalError(f"the {tier} sent a broken answer: {error.message}") from error
    answered_by, grain = message.answered_by or tier, message.grain or OBJECT
    return Answer(found, answered_by, grain, reply.hops, sent_bytes, reply.received_bytes), message


@dataclass(frozen=True, slots=True)
class Attempt:
    """One tier that was asked for one request.

    Attributes
    ----------
    tier : str
        Name of the tier: "edge" or "cloud".
    outcome : StatusCode
        OK, or what went wrong there.
    elapsed_ms : float
        From the question to the answer or failure.
    """

    tier: str
    outcome: StatusCode
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an answer of the next tier says beyond its content."""

    tier: str
    """Who was asked."""
    unknown: bool
    """The features of the photo were unknown, even if the image after them was not."""
    round_trip_ms: float
    """From the last message to its answer."""
    first_ms: float
    """From the decision to ask to the first answer; making the form that is sent is part of it."""
    waited_ms: float
    """From the question to the last answer."""
    complete: bool
    """False if a second message was sent and had no answer."""
    hop: Hop
    """What the tier that was asked says that it spent, in the last answer."""
