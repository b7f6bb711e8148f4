"""Fast check of a frame before it is sent: whether it is sharp, and whether it shows the same scene.

The check takes a fraction of a millisecond. Two frames show the same scene if their thumbnails correlate. The
correlation ignores brightness and is little affected by camera shake. Sharpness is the variance of the
Laplacian [Pech-Pacheco 2000]. It depends on the scene, so it is compared with that of earlier frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

SAME_SCENE = 0.6
"""Thumbnails with a lower correlation show different scenes."""
STEADY = 0.7
"""A frame with a lower correlation to the one before was taken in a fast turn; it is rarely recognised."""
SAME_PICTURE = 0.995
"""From this correlation on, a new request would get the same answer."""
_THUMBNAIL = (32, 24)
_FLAT = 2.0
"""Below this standard deviation [grey levels] a frame is flat, such as a wall; noise does not correlate."""
_SAME_LEVEL = 16.0
"""Two flat frames are similar if their brightness differs by less [grey levels]."""
_LEAST_SHARE = 0.35
"""A frame is blurred if its sharpness is below this share of the recent sharpness."""
_NOISE_SHARPNESS = 10.0
"""Sharpness of camera noise. Frames of less sharpness, such as black ones, are assumed to have this value."""
_HALF_LIFE_S = 0.5
"""Half-life of the recent sharpness, so that a scene of low contrast is not rejected permanently."""


@dataclass(frozen=True, slots=True, eq=False)
class Glance:
    """Features of a frame that are compared with those of other frames."""

    pattern: NDArray[np.float32] | None
    """(24 · 32,): the thumbnail, normalised to mean 0 and length 1; None if the frame is flat."""
    brightness: float
    """Mean grey level, 0 to 255."""
    sharpness: float
    """Variance of the Laplacian [grey levels squared]."""

    def correlation(self, other: Glance) -> float:
        """Correlation with another frame, in [-1, 1]. For two flat frames: 1 if equally bright, else 0."""
        if self.pattern is not None and other.pattern is not None:
            return float(self.pattern @ other.pattern)
        both_flat = self.pattern is None and other.pattern is None
        return float(both_flat and abs(self.brightness - other.brightness) < _SAME_LEVEL)


def glance_at(gray: NDArray[np.uint8]) -> Glance:
    """Compute the features of a frame: ``(H, W)`` uint8, a few hundred pixels wide."""
    small = cv2.resize(gray, _THUMBNAIL, interpolation=cv2.INTER_AREA).astype(np.float32).ravel()
    brightness = float(small.mean())
    small -= brightness
    length = float(np.linalg.norm(small))
    flat = length < _FLAT * len(small) ** 0.5
    sharpness = float(cv2.meanStdDev(cv2.Laplacian(gray, cv2.CV_16S))[1][0, 0] ** 2)
    return Glance(None if flat else small / np.float32(length), brightness, sharpness)


class BlurGate:
    """Detects blurred frames of one stream."""

    def __init__(self) -> None:
        self._recent = 0.0
        self._at_s = 0.0

    def blurred(self, glance: Glance, now_s: float) -> bool:
        """Whether the next frame of the stream is much less sharp than recent frames."""
        faded = self._recent * 2.0 ** ((self._at_s - now_s) / _HALF_LIFE_S)
        self._recent, self._at_s = max(faded, glance.sharpness), now_s
        return max(glance.sharpness, _NOISE_SHARPNESS) < _LEAST_SHARE * self._recent
