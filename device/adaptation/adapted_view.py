"""Adapted views: other descriptors for features that a vouched model has. Their bounds, and their bytes.

As bytes they are items of a shared list, which other devices write: what comes in is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel
from nearsight.protos.peers_pb2 import AdaptedViewMessage

_INDEX = np.dtype("<u2")


@dataclass(frozen=True, slots=True)
class AdaptationRules:
    """What is learned, kept and believed."""

    min_confidence: float = 0.7
    """Of an answer whose photo is learned from: 0.7 are 24 inliers without a rival."""
    radius_px: float = 5.0
    """Farthest that a feature of the photo may lie from where the homography puts a vouched feature."""
    max_bits: int = 64
    """Farthest that an adapted descriptor may be from the vouched one, in bits of 256."""
    min_features: int = 20
    max_features: int = 300
    """Of an adapted view."""
    new_bits: int = 16
    """A descriptor that is nearer than this to what is there already adds nothing."""
    min_new: float = 0.25
    """Part of a view's descriptors that must add something."""
    own_views: int = 3
    shared_views: int = 3
    """Kept per object: learned here, and by others. Apart, so that a flood of shared ones displaces no
    own."""
    objects: int = 200
    """Objects with adapted views, at most; those unused for longest are forgotten."""
    max_items: int = 16
    """Shared views of one object that are looked at, drawn at random from as many as there are."""
    max_item_bytes: int = 16 * 1024
    """Longer ones are not even parsed."""
    lifetime_s: float = 3600.0
    """Shared views vanish after this time: the light changes."""
    candidates: int = 2
    """Views that are verified at a second look, at most. Measured: 2 instead of 6 lose one of 16 photos
    gained, and save a third of the time."""
    max_log10_false_alarms: float = -2.0
    """Of the agreement between photo and vouched model (`evidence`), to learn and to believe a view. The best
    of 8,000 homographies between unrelated exhibits came to 9.3."""


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedView:
    """How features of one view of a model look under other light.

    Raises
    ------
    InvalidArgument
        If shapes or types do not fit, or the indices do not rise.
    """

    object_id: str
    version: int
    """Of the model; the view means nothing for another."""
    view: int
    """Which view of the model."""
    indices: NDArray[np.int32]
    """(M,) int32: which features of that view, rising: no feature twice."""
    descriptors: NDArray[np.uint8]
    """(M, 32) uint8: what they look like."""

    def __post_init__(self) -> None:
        count = len(self.indices)
        for name, array, shape, dtype in (
            ("indices", self.indices, (count,), np.int32),
            ("descriptors", self.descriptors, (count, DESCRIPTOR_BYTES), np.uint8),
        ):
            if array.shape != shape or array.dtype != dtype:
                raise InvalidArgument(
                    f"{name} must be {shape} {np.dtype(dtype)}, got {array.shape} {array.dtype}"
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


def view_to_bytes(view: AdaptedView) -> bytes:
    """One list item; equal views give equal bytes."""
    if len(view) and view.indices[-1] >= 2**16:
        raise InvalidArgument(f"an adapted view names features up to {2**16 - 1}, got {view.indices[-1]}")
    return AdaptedViewMessage(
        object_id=view.object_id,
        version=view.version,
        view=view.view,
        features=view.indices.astype(_INDEX).tobytes(),
        descriptors=view.descriptors.tobytes(),
    ).SerializeToString(deterministic=True)


def view_from_bytes(data: bytes, max_bytes: int) -> AdaptedView:
    """The view of one item.

    Raises
    ------
    InvalidMessage
        If it is longer than ``max_bytes``, or no view.
    """
    if len(data) > max_bytes:
        raise InvalidMessage(f"an adapted view of {len(data)} bytes, the limit is {max_bytes}")
    try:
        message = AdaptedViewMessage.FromString(data)
        indices = np.frombuffer(message.features, _INDEX).astype(np.int32)
        descriptors = np.frombuffer(message.descriptors, np.uint8).reshape(-1, DESCRIPTOR_BYTES)
        return AdaptedView(message.object_id, message.version, message.view, indices, descriptors)
    except (DecodeError, ValueError, InvalidArgument) as error:  # ValueError: half an index or descriptor
        raise InvalidMessage(f"no adapted view: {error}") from error
