"""Adapted views: other descriptors for features of a vouched model; their limits and their byte format.

As bytes they are items of a shared list that other devices write; therefore decoding checks them.
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
    """Limits for learning, keeping and accepting adapted views."""

    min_confidence: float = 0.7
    """Minimum confidence of an answer from whose photo the device learns; 0.7 means 24 inliers without a
    rival."""
    radius_px: float = 5.0
    """Maximum distance of a photo's feature from the position of a vouched feature under the homography
    [px]."""
    max_bits: int = 64
    """Maximum distance of an adapted descriptor from the vouched one, in bits of 256."""
    min_features: int = 20
    max_features: int = 300
    """Minimum and maximum number of features of an adapted view."""
    new_bits: int = 16
    """Minimum distance of a new descriptor from the existing ones of the feature, in bits."""
    min_new: float = 0.25
    """Minimum share of a view's descriptors that must be new in this sense."""
    own_views: int = 3
    shared_views: int = 3
    """Maximum number of views kept per object: learned here, and shared by others. Separate limits, so that a
    flood of shared views cannot displace own ones."""
    objects: int = 200
    """Maximum number of objects with adapted views; the least recently used are dropped."""
    max_items: int = 16
    """Maximum number of shared views of an object that are processed, drawn at random from all."""
    max_item_bytes: int = 16 * 1024
    """Maximum size of an item; larger ones are not parsed."""
    lifetime_s: float = 3600.0
    """Time to live of shared views [s], as the light changes."""
    candidates: int = 2
    """Maximum number of views that are verified in a second look. Measured: 2 instead of 6 lose one of 16
    additional answers, and save a third of the time."""
    max_log10_false_alarms: float = -2.0
    """Maximum log10 of the number of false alarms of the agreement between photo and vouched model
    (`evidence`), for learning and for accepting a view. The lowest value of 8,000 homographies between
    unrelated exhibits was 9.3."""


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedView:
    """The appearance of features of one view of a model in other light.

    Raises
    ------
    InvalidArgument
        If shapes or types do not fit, or the indices are not strictly increasing.
    """

    object_id: str
    version: int
    """Version of the model; the view is valid for this version only."""
    view: int
    """Index of the view of the model."""
    indices: NDArray[np.int32]
    """(M,) int32: indices of features of that view, strictly increasing."""
    descriptors: NDArray[np.uint8]
    """(M, 32) uint8: descriptors of these features."""

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
            raise InvalidArgument(
                "the indices of an adapted view must be non-negative and strictly increasing"
            )

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size_bytes(self) -> int:
        """Bytes of the two arrays."""
        return self.indices.nbytes + self.descriptors.nbytes

    def features(self, model: ObjectModel) -> Features:
        """The view as features: new descriptors at the vouched positions, in the vouched coordinates."""
        base = model.views[self.view]
        return Features(
            base.keypoints[self.indices],
            self.descriptors,
            base.strengths[self.indices],
            base.image_size,
            base.source_size,
        )


def hamming(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Number of different bits between descriptors (..., 32) and (..., 32), row by row."""
    words = np.ascontiguousarray(first ^ second).view(np.uint64)
    return np.asarray(np.bitwise_count(words).sum(axis=-1, dtype=np.int64), np.int64)


def view_to_bytes(view: AdaptedView) -> bytes:
    """The view as a list item; equal views give equal bytes.

    Raises
    ------
    InvalidArgument
        If the index of a feature does not fit into 16 bits.
    """
    if len(view) and view.indices[-1] >= 2**16:
        raise InvalidArgument(f"the index of a feature must be below {2**16}, got {view.indices[-1]}")
    return AdaptedViewMessage(
        object_id=view.object_id,
        version=view.version,
        view=view.view,
        features=view.indices.astype(_INDEX).tobytes(),
        descriptors=view.descriptors.tobytes(),
    ).SerializeToString(deterministic=True)


def view_from_bytes(data: bytes, max_bytes: int) -> AdaptedView:
    """The view of a list item.

    Raises
    ------
    InvalidMessage
        If it is longer than ``max_bytes``, or not a view.
    """
    if len(data) > max_bytes:
        raise InvalidMessage(f"an adapted view of {len(data)} bytes, the limit is {max_bytes}")
    try:
        message = AdaptedViewMessage.FromString(data)
        indices = np.frombuffer(message.features, _INDEX).astype(np.int32)
        descriptors = np.frombuffer(message.descriptors, np.uint8).reshape(-1, DESCRIPTOR_BYTES)
        return AdaptedView(message.object_id, message.version, message.view, indices, descriptors)
    except (DecodeError, ValueError, InvalidArgument) as error:  # ValueError: half an index or descriptor
        raise InvalidMessage(f"not an adapted view: {error}") from error
