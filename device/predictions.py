"""What may be seen next, and who says so: an edge, or the devices nearby."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from nearsight.common.caching.codec import next_objects_from_proto
from nearsight.common.caching.next_objects import NextObjects
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MOST_NEXT_OBJECTS = 256
"""Of a prediction, so many objects are kept; the rest is hardly ever asked for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said to follow an object.

    Attributes
    ----------
    following : NextObjects
        The most probable objects.
    revision : int or None
        Of the catalogue, as the edge knew it; None from others, who do not vouch for any.
    """

    following: NextObjects
    revision: int | None


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
