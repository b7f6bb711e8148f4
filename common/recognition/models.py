"""Data of recognition: local features of an image, and the object model made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

DESCRIPTOR_BYTES = 32
"""Bytes of one binary descriptor (256 bits), the same for every kind of features."""

FEATURE_BYTES = 2 * 4 + DESCRIPTOR_BYTES + 4
"""Bytes of one feature in memory: keypoint, descriptor and strength."""

TWIN = 0
"""In `ObjectModel.rivals`, instead of inliers: the same picture under another id; either id is correct."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Keypoints and binary descriptors of one image, strongest first.

    Raises
    ------
    InvalidArgument
        If shapes, types or sizes are inconsistent. Features may come from untrusted peers.
    """

    keypoints: NDArray[np.float32]
    """(N, 2) float32: x, y in pixels of the processed image."""
    descriptors: NDArray[np.uint8]
    """(N, 32) uint8: one binary descriptor per keypoint."""
    strengths: NDArray[np.float32]
    """(N,) float32: detector response, in non-increasing order."""
    image_size: tuple[int, int]
    """Width and height in pixels of the processed image, the frame of ``keypoints``."""
    source_size: tuple[int, int]
    """Width and height in pixels of the image before scaling, the frame of the answers."""

    def __post_init__(self) -> None:
        count = len(self.descriptors)
        expected = {
            "keypoints": ((count, 2), np.float32),
            "descriptors": ((count, DESCRIPTOR_BYTES), np.uint8),
            "strengths": ((count,), np.float32),
        }
        for name, (shape, dtype) in expected.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype:
                raise InvalidArgument(
                    f"{name} must be {shape} {np.dtype(dtype)}, got {array.shape} {array.dtype}"
                )
        if not (np.isfinite(self.keypoints).all() and np.isfinite(self.strengths).all()):
            raise InvalidArgument("keypoints and strengths must be finite")
        for name, size in (("image_size", self.image_size), ("source_size", self.source_size)):
            if min(size) < 1:
                raise InvalidArgument(f"{name} must be positive, got {size}")

    def __len__(self) -> int:
        return len(self.descriptors)

    @property
    def size_bytes(self) -> int:
        """Size of the three arrays [bytes]."""
        return self.keypoints.nbytes + self.descriptors.nbytes + self.strengths.nbytes

    def strongest(self, count: int) -> Features:
        """The ``count`` strongest features, as views of the arrays without copying."""
        if count >= len(self):
            return self
        arrays = (self.keypoints[:count], self.descriptors[:count], self.strengths[:count])
        return Features(*arrays, self.image_size, self.source_size)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectModel:
    """All data needed to recognise one object and to describe it.

    The unit that is cached, prefetched, shared between devices and stored (Cachier dissertation, section
    2.1). Views are stored separately, because a homography fits only one view.
    """

    object_id: str
    """Unique within a catalogue; not empty."""
    label: str
    """Name of the object for users."""
    views: tuple[Features, ...]
    """Features of each training image; at least one."""
    version: int = 1
    """Incremented each time the object is replaced."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free-form data that the application receives with the answer."""
    rivals: Mapping[str, int] = field(default_factory=dict)
    """Other objects of the catalogue that could be mistaken for this one: id → inliers between their pictures
    and its own, or `TWIN`. They are found when objects are added (`common/catalogue/look_alikes.py`)."""

    def __post_init__(self) -> None:
        if not self.object_id:
            raise InvalidArgument("an object needs an id")
        if not self.views:
            raise InvalidArgument(f"object {self.object_id!r} has no view")

    @property
    def size_bytes(self) -> int:
        """Size of all views [bytes]."""
        return sum(view.size_bytes for view in self.views)
