"""A further view of an object: other descriptors for features that its vouched model has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedView:
    """How features of one view of a model look under other light.

    Attributes
    ----------
    object_id : str
    version : int
        Of the model; the view means nothing for another.
    view : int
        Which view of the model.
    indices : ndarray, (M,) int32
        Which features of that view, rising: no feature twice.
    descriptors : ndarray, (M, 32) uint8
        What they look like.

    Raises
    ------
    InvalidArgument
        If shapes or types do not fit, or the indices do not rise.
    """

    object_id: str
    version: int
    view: int
    indices: NDArray[np.int32]
    descriptors: NDArray[np.uint8]

    def __post_init__(self) -> None:
        count = len(self.indices)
        if self.indices.shape != (count,) or self.indices.dtype != np.int32:
            raise InvalidArgument(
                f"indices must be ({count},) int32, got {self.indices.shape} {self.indices.dtype}"
            )
        if self.descriptors.shape != (count, DESCRIPTOR_BYTES) or self.descriptors.dtype != np.uint8:
            raise InvalidArgument(
                f"descriptors must be ({count}, {DESCRIPTOR_BYTES}) uint8, "
                f"got {self.descriptors.shape} {self.descriptors.dtype}"
            )
        if self.view < 0 or (count and self.indices[0] < 0) or (np.diff(self.indices) <= 0).any():
            raise InvalidArgument("an adapted view names features of a view, each once, in rising order")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size_bytes(self) -> int:
        """Bytes of the two arrays."""
        return self.indices.nbytes + self.descriptors.nbytes

    def features(self, model: ObjectModel) -> Features:
        """The view as features: new descriptors at the vouched places, in the vouched frame."""
        base = model.views[self.view]
        return Features(
            base.keypoints[self.indices],
            self.descriptors,
            base.strengths[self.indices],
            base.image_size,
            base.source_size,
        )


def hamming(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Bits in which descriptors (..., 32) and (..., 32) differ, row by row."""
    words = np.ascontiguousarray(first ^ second).view(np.uint64)
    return np.asarray(np.bitwise_count(words).sum(axis=-1, dtype=np.int64), np.int64)
