"""What a device may see next: the PDF that an edge sends to its devices (dissertation, section 4.3.1.3).

As a message, too. What comes in was written by strangers: it is checked before it is believed.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MAX_NEXT_OBJECTS = 4096
"""Most objects that a message may list as next; edges send tens."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NextObjects:
    """Possible next objects, the most probable first.

    Raises
    ------
    InvalidArgument
        If lengths differ, or the probabilities rise, are negative or sum to more than 1: what a peer sent
        is checked here.
    """

    object_ids: tuple[str, ...]
    """Different objects, length M."""
    probabilities: NDArray[np.float64]
    """(M,) float64: P(next), falling."""
    remaining: float
    """Probability of everything that is not listed: objects that were cut off, and objects that nobody was
    seen to ask for. With it the probabilities sum to 1."""

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.shape != (len(self.object_ids),):
            raise InvalidArgument(
                f"{len(self.object_ids)} objects need as many probabilities, got shape {p.shape}"
            )
        if len(set(self.object_ids)) != len(self.object_ids):
            raise InvalidArgument("an object is listed twice")
        if not (np.isfinite(p).all() and (p >= 0).all() and (p[1:] <= p[:-1] + _ROUNDING).all()):
            raise InvalidArgument("probabilities must be finite, not negative, and fall")
        if not abs(float(p.sum()) + self.remaining - 1) <= _ROUNDING or self.remaining < -_ROUNDING:
            raise InvalidArgument(
                f"probabilities must sum to 1, got {p.sum()} and {self.remaining} remaining"
            )

    def __len__(self) -> int:
        return len(self.object_ids)

    def top(self, count: int) -> NextObjects:
        """Only the first ``count``; the rest joins what remains."""
        return NextObjects.of(self.object_ids[:count], self.probabilities[:count])

    def without(self, object_ids: Set[str]) -> NextObjects:
        """All objects but these, which join what remains."""
        if object_ids.isdisjoint(self.object_ids):
            return self
        kept = [index for index, name in enumerate(self.object_ids) if name not in object_ids]
        return NextObjects.of(tuple(self.object_ids[index] for index in kept), self.probabilities[kept])

    def mixed(self, other: NextObjects, weight: float) -> NextObjects:
        """This distribution with a weight in [0, 1], and another one with the rest of it."""
        total: dict[str, float] = {}
        for part, share in ((self, weight), (other, 1.0 - weight)):
            for name, p in zip(part.object_ids, part.probabilities.tolist(), strict=True):
                total[name] = total.get(name, 0.0) + share * p
        names = sorted(total, key=total.__getitem__, reverse=True)
        return NextObjects.of(tuple(names), np.array([total[name] for name in names]))

    @classmethod
    def of(cls, object_ids: tuple[str, ...], probabilities: NDArray[np.float64]) -> NextObjects:
        """These objects; what is missing to 1 remains."""
        return cls(object_ids, probabilities, max(0.0, 1.0 - float(probabilities.sum())))

    @classmethod
    def nothing(cls) -> NextObjects:
        """No idea what comes next."""
        return cls((), np.zeros(0), 1.0)


def next_objects_to_proto(following: NextObjects, revision: int) -> NextObjectsMessage:
    """The message of a PDF, as of this revision of the catalogue; the unlikely rest is cut off."""
    listed = following.top(MAX_NEXT_OBJECTS) if len(following.object_ids) > MAX_NEXT_OBJECTS else following
    return NextObjectsMessage(
        object_ids=listed.object_ids,
        probabilities=listed.probabilities.tolist(),
        remaining=max(0.0, listed.remaining),
        revision=revision,
    )


def next_objects_from_proto(message: NextObjectsMessage, most: int = MAX_NEXT_OBJECTS) -> NextObjects:
    """The PDF of a message, of its ``most`` probable objects; its revision stays with the message.

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
        following = NextObjects(tuple(message.object_ids), probabilities, message.remaining)
    except InvalidArgument as error:
        raise InvalidMessage(f"next objects: {error.message}") from error
    return following if count <= most else following.top(most)
