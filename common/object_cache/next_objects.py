"""The PDF of a device's next object, which an edge sends to its devices (dissertation, section 4.3.1.3).

Includes the conversion to and from messages. Received data is untrusted and validated.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MAX_NEXT_OBJECTS = 4096
"""Maximum number of next objects in a message; edges send tens."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NextObjects:
    """Possible next objects, the most probable first.

    Raises
    ------
    InvalidArgument
        If lengths differ, an object occurs twice, or the probabilities increase, are negative or sum to more
        than 1. This also validates data from peers.
    """

    object_ids: tuple[str, ...]
    """Distinct ids, length M."""
    probabilities: NDArray[np.float64]
    """(M,) float64: P(next), not increasing."""

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.shape != (len(self.object_ids),):
            raise InvalidArgument(
                f"{len(self.object_ids)} objects need the same number of probabilities, got shape {p.shape}"
            )
        if len(set(self.object_ids)) != len(self.object_ids):
            raise InvalidArgument("an object is listed twice")
        if not (np.isfinite(p).all() and (p >= 0).all() and (p[1:] <= p[:-1] + _ROUNDING).all()):
            raise InvalidArgument("probabilities must be finite, not negative and not increasing")
        if p.sum() > 1 + _ROUNDING:
            raise InvalidArgument(f"probabilities must not sum to more than 1, got {p.sum()}")

    def __len__(self) -> int:
        return len(self.object_ids)

    @property
    def remaining(self) -> float:
        """Probability of all objects that are not listed, because they were cut off or never requested."""
        return max(0.0, 1.0 - float(self.probabilities.sum()))

    def top(self, count: int) -> NextObjects:
        """The first ``count`` objects; the probability of the others is added to ``remaining``."""
        return NextObjects(self.object_ids[:count], self.probabilities[:count])

    def without(self, object_ids: Set[str]) -> NextObjects:
        """All objects except these, whose probability is added to ``remaining``."""
        if object_ids.isdisjoint(self.object_ids):
            return self
        kept = [index for index, name in enumerate(self.object_ids) if name not in object_ids]
        return NextObjects(tuple(self.object_ids[index] for index in kept), self.probabilities[kept])

    def mixed(self, other: NextObjects, weight: float) -> NextObjects:
        """Mixture of this distribution with ``weight`` in [0, 1] and of ``other`` with ``1 - weight``."""
        total: dict[str, float] = {}
        for part, share in ((self, weight), (other, 1.0 - weight)):
            for name, p in zip(part.object_ids, part.probabilities.tolist(), strict=True):
                total[name] = total.get(name, 0.0) + share * p
        names = sorted(total, key=total.__getitem__, reverse=True)
        return NextObjects(tuple(names), np.array([total[name] for name in names]))

    @classmethod
    def nothing(cls) -> NextObjects:
        """A PDF without any objects: no prediction."""
        return cls((), np.zeros(0))


def next_objects_to_proto(following: NextObjects, revision: int) -> NextObjectsMessage:
    """Encode a PDF for a revision of the catalogue; objects beyond `MAX_NEXT_OBJECTS` are cut off."""
    listed = following.top(MAX_NEXT_OBJECTS) if len(following.object_ids) > MAX_NEXT_OBJECTS else following
    return NextObjectsMessage(
        object_ids=listed.object_ids,
        probabilities=listed.probabilities.tolist(),
        remaining=listed.remaining,
        revision=revision,
    )


def next_objects_from_proto(message: NextObjectsMessage, most: int = MAX_NEXT_OBJECTS) -> NextObjects:
    """Decode the PDF of a message, limited to the ``most`` most probable objects; ignores the revision.

    Raises
    ------
    InvalidMessage
        If there are too many objects, an id is empty, or the numbers are not a distribution.
    """
    count = len(message.object_ids)
    if count > MAX_NEXT_OBJECTS:
        raise InvalidMessage(f"{count} next objects, the limit is {MAX_NEXT_OBJECTS}")
    if not all(message.object_ids):
        raise InvalidMessage("next objects: an object without an id")
    probabilities = np.array(message.probabilities, dtype=np.float64)
    try:
        following = NextObjects(tuple(message.object_ids), probabilities)
    except InvalidArgument as error:
        raise InvalidMessage(f"next objects: {error.message}") from error
    if not abs(following.remaining - message.remaining) <= _ROUNDING:
        raise InvalidMessage(f"next objects: {message.remaining} remains, not {following.remaining}")
    return following if count <= most else following.top(most)
