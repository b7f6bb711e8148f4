"""One row of a sparse Markov model: what followed one history, and how often.

Two small arrays instead of a dictionary: a million transitions then take tens of megabytes rather than
hundreds, and a row becomes probabilities without a loop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FIRST_CAPACITY = 4


class TransitionRow:
    """Weights by slot; a slot is the number that stands for an object."""

    __slots__ = ("_size", "_slots", "_weights")

    def __init__(self) -> None:
        self._slots = np.empty(_FIRST_CAPACITY, dtype=np.int32)
        self._weights = np.empty(_FIRST_CAPACITY, dtype=np.float64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def slots(self) -> NDArray[np.int32]:
        """Which objects followed: (len,) int32, in the order in which they first did."""
        return self._slots[: self._size]

    @property
    def weights(self) -> NDArray[np.float64]:
        """How often: (len,) float64, beside `slots`."""
        return self._weights[: self._size]

    def add(self, slot: int, weight: float) -> None:
        """Let one more transition lead to this slot."""
        found = np.flatnonzero(self.slots == slot)
        if len(found):
            self._weights[found[0]] += weight
            return
        if self._size == len(self._slots):
            # By half: doubling wastes more than a million short rows can afford.
            capacity = self._size + max(_FIRST_CAPACITY, self._size // 2)
            self._slots = np.resize(self._slots, capacity)
            self._weights = np.resize(self._weights, capacity)
        self._slots[self._size] = slot
        self._weights[self._size] = weight
        self._size += 1

    def weight_of(self, slot: int) -> float:
        """The weight of a slot; 0 if it never followed."""
        return float(self.weights[self.slots == slot].sum())

    def scale(self, factor: float) -> None:
        """Multiply all weights."""
        self._weights[: self._size] *= factor

    def keep(self, wanted: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Keep only the entries that are marked, (len,) bool; returns the slots that went."""
        gone = self.slots[~wanted].copy()
        if len(gone):
            kept_slots, kept_weights = self.slots[wanted], self.weights[wanted]
            self._slots, self._weights, self._size = kept_slots, kept_weights, len(kept_slots)
        return gone
