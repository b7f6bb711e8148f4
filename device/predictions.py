"""What may be seen next, and who says so: an edge, or the devices nearby."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from nearsight.common.errors import InvalidMessage
from nearsight.common.object_cache.codec import next_objects_from_proto
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MOST_NEXT_OBJECTS = 256
"""Of a prediction, so many objects are kept; the rest is hardly ever asked for."""
_LONGEST_ANSWER_MS = 60_000.0
"""An edge that says that a photo takes longer says nonsense: nobody waits for so long."""


@dataclass(frozen=True, slots=True)
class EdgeNow:
    """What a photo would find at the edge now, as far as a report and its answer tell.

    Attributes
    ----------
    answer_ms : float
        From its arrival to the answer, without the tiers behind the edge; the edge says so.
    transfer_ms : float
        Of the report and its answer: the time that the device waited less what the edge spent.

    Raises
    ------
    InvalidMessage
        If a time cannot be: the edge is not believed everything.
    """

    answer_ms: float
    transfer_ms: float

    def __post_init__(self) -> None:
        if not (0 < self.answer_ms <= _LONGEST_ANSWER_MS and 0 <= self.transfer_ms < math.inf):
            raise InvalidMessage(f"an answer of {self.answer_ms} ms, {self.transfer_ms} ms away, cannot be")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said to follow an object.

    Attributes
    ----------
    following : NextObjects
        The most probable objects.
    revision : int or None
        Of the catalogue, as the edge knew it; None from others, who do not vouch for any.
    now : EdgeNow, optional
        What a photo takes at the edge that predicted, if it said so.
    """

    following: NextObjects
    revision: int | None
    now: EdgeNow | None = None


class PredictionSource(Protocol):
    """Who predicts."""

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Say what the device recognised, and ask what may follow; the future ends within ``timeout_s``."""


def prediction_of(message: NextObjectsMessage) -> Prediction:
    """The prediction in a message.

    Raises
    ------
    InvalidMessage
        If it is no distribution.
    """
    return Prediction(next_objects_from_proto(message).top(MOST_NEXT_OBJECTS), message.revision)
