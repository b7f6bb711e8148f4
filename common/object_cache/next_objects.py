"""What a device may see next: the PDF that an edge sends to its devices (dissertation, section 4.3.1.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

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
        kept = self.probabilities[:count]
        return NextObjects(self.object_ids[:count], kept, max(0.0, 1.0 - float(kept.sum())))

    def mixed(self, other: NextObjects, weight: float) -> NextObjects:
        """This distribution with a weight in [0, 1], and another one with the rest of it."""
        total: dict[str, float] = {}
        for part, share in ((self, weight), (other, 1.0 - weight)):
            for name, p in zip(part.object_ids, part.probabilities.tolist(), strict=True):
                total[name] = total.get(name, 0.0) + share * p
        names = sorted(total, key=total.__getitem__, reverse=True)
        probabilities = np.array([total[name] for name in names])
        return NextObjects(tuple(names), probabilities, max(0.0, 1.0 - float(probabilities.sum())))

    @classmethod
    def nothing(cls) -> NextObjects:
        """No idea what comes next."""
        return cls((), np.zeros(0), 1.0)
