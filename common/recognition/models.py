"""What recognition keeps of images: their local features, and the model of an object made of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

DESCRIPTOR_BYTES = 32
"""Bytes of one binary descriptor (256 bits), the same for every extractor behind the interface."""

TWIN = 0
"""Instead of inliers in `ObjectModel.rivals`: the same picture under another id; either answers."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Keypoints and binary descriptors of one image, strongest first.

    Raises
    ------
    InvalidArgument
        If shapes, types or sizes do not fit together. Features arrive from the network: nothing is assumed.
    """

    keypoints: NDArray[np.float32]
    """(N, 2) float32: x, y in pixels of the processed image."""
    descriptors: NDArray[np.uint8]
    """(N, 32) uint8: one binary descriptor per keypoint."""
    strengths: NDArray[np.float32]
    """(N,) float32: response of the detector; not increasing."""
    image_size: tuple[int, int]
    """Width and height in pixels of the processed image, in which ``keypoints`` are."""
    source_size: tuple[int, int]
    """Width and height in pixels of the image before scaling; answers are given in its frame."""

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
        """Bytes of the three arrays."""
        return self.keypoints.nbytes + self.descriptors.nbytes + self.strengths.nbytes

    def strongest(self, count: int) -> Features:
        """The ``count`` strongest features (views, no copy)."""
        if count >= len(self):
            return self
        arrays = (self.keypoints[:count], self.descriptors[:count], self.strengths[:count])
        return Features(*arrays, self.image_size, self.source_size)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectModel:
    """Everything needed to recognise one object and to say what it is.

    The unit that is cached, prefetched, shared between devices and stored (Cachier dissertation, section
    2.1). Views are kept apart: a homography fits one view, never a mixture.
    """

    object_id: str
    """Unique within a catalogue."""
    label: str
    """What a person calls the object."""
    views: tuple[Features, ...]
    """Features of each training image; at least one."""
    version: int = 1
    """Grows by one with each replacement of the object."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free-form, handed to the application with the answer."""
    rivals: Mapping[str, int] = field(default_factory=dict)
    """Other objects of the catalogue that could be mistaken for this one: id → inliers that their pictures
    give with it, or `TWIN`. They are found as objects are added (`common/catalogue/look_alikes.py`)."""

    def __post_init__(self) -> None:
        if not self.object_id:
            raise InvalidArgument("an object needs an id")
        if not self.views:
            raise InvalidArgument(f"object {self.object_id!r} has no view")

    @property
    def size_bytes(self) -> int:
        """Bytes of all views."""
        return sum(view.size_bytes for view in self.views)
