"""Keys of images: what makes photos of the same view share a result.

A photo is never the same twice: hands shake, sensors add noise, light changes. So an image is described by
few numbers that all photos of one view have in common, and these make the key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.approximations import Approximation, Vector, identity

Grey = NDArray[np.uint8]
Small = NDArray[np.float32]

SIDE_PX = 32
"""Images are made this small before they are described; a decoder may shrink them so far at once."""
_FLAT_LEVELS = 4.0
"""Standard deviation of grey levels below which an image shows nothing: a wall, a finger on the lens."""


@dataclass(frozen=True, slots=True)
class ImageKey:
    """A function from grey images to keys of 128 bits; ``| prefix(7)`` goes on with its numbers."""

    name: str
    describe: Callable[[Small], Vector]
    """Numbers (N,) that describe an image (`SIDE_PX`, `SIDE_PX`) float32."""
    approximation: Approximation = field(default_factory=identity)

    def __call__(self, grey: Grey) -> bytes | None:
        """The key of an image: 16 bytes; None if it shows too little to be told from others.

        Parameters
        ----------
        grey : ndarray, (H, W) uint8

        Raises
        ------
        InvalidArgument
            If it is no grey image.
        """
        small = _small(grey)
        return None if small.std() < _FLAT_LEVELS else self.approximation(self.describe(small))

    def __or__(self, then: Approximation) -> ImageKey:
        return replace(self, name=f"{self.name} | {then.name}", approximation=self.approximation | then)

    def within(self, *context: str) -> ImageKey:
        """The same function with keys of its own for this context, such as a catalogue and its version."""
        return replace(self, approximation=self.approximation.within(*context))


def perceptual_hash(side: int = 8) -> ImageKey:
    """Signs of the lowest ``side`` x ``side`` frequencies, against their median (pHash)."""

    def describe(small: Small) -> Vector:
        coefficients = cv2.dct(small)[:side, :side].ravel()[1:]  # the mean is the exposure's
        return np.asarray(coefficients > np.median(coefficients))

    return ImageKey(f"perceptual_hash({side})", describe)


def _small(grey: Grey) -> Small:
    if grey.ndim != 2 or grey.dtype != np.uint8 or not grey.size:
        raise InvalidArgument(
            f"a grey image is (H, W) uint8 with pixels, got {grey.shape} {grey.dtype}",
            advice="load_image makes one of bytes, a path or an array",
        )
    small = cv2.resize(grey, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)
