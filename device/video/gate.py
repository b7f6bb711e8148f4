"""A glance at a frame before anything is asked: whether it is sharp, and still shows the same.

A glance costs a fraction of a millisecond. A thumbnail tells whether two frames show the same scene: its
correlation ignores brightness, and hands that tremble move it little. Sharpness is the variance of the
Laplacian [Pech-Pacheco 2000]. It depends on what is filmed, so it is compared with that of earlier frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

SAME_SCENE = 0.6
"""Thumbnails with a lower correlation show different scenes."""
STEADY = 0.7
"""A frame that is less like the one before it was taken in a fast turn, and is hardly ever recognised."""
SAME_PICTURE = 0.995
"""From here on a new question would have the same answer."""
_THUMBNAIL = (32, 24)
_FLAT = 2.0
"""With a smaller standard deviation [grey levels] it is a wall, or black: noise does not correlate."""
_SAME_LEVEL = 16.0
"""Two such pictures are the same within this difference of brightness, in grey levels."""
_SHARP = 0.35
"""Share of the recent sharpness below which a frame is blurred."""
_PLAIN = 10.0
"""Sharpness of the noise of a camera: what has less, such as black frames, is taken to have so much."""
_FORGOTTEN_S = 0.5
"""Half of the recent sharpness is forgotten in this time, so that a dull scene does not wait for ever."""


@dataclass(frozen=True, slots=True, eq=False)
class Glance:
    """What is kept of a frame to compare others with."""

    pattern: NDArray[np.float32] | None
    """(24 · 32,): the thumbnail with mean 0 and length 1; None if it is flat."""
    brightness: float
    """Mean grey level, 0 to 255."""
    sharpness: float
    """Variance of the Laplacian, in grey levels squared."""

    def likeness(self, other: Glance) -> float:
        """Correlation with another frame, in [-1, 1]; flat ones are alike if they are equally bright."""
        if self.pattern is not None and other.pattern is not None:
            return float(self.pattern @ other.pattern)
        both_flat = self.pattern is None and other.pattern is None
        return float(both_flat and abs(self.brightness - other.brightness) < _SAME_LEVEL)


def glance_at(gray: NDArray[np.uint8]) -> Glance:
    """Glance at a frame: ``(H, W)`` uint8, a few hundred pixels wide."""
    small = cv2.resize(gray, _THUMBNAIL, interpolation=cv2.INTER_AREA).astype(np.float32).ravel()
    brightness = float(small.mean())
    small -= brightness
    length = float(np.linalg.norm(small))
    flat = length < _FLAT * len(small) ** 0.5
    sharpness = float(cv2.meanStdDev(cv2.Laplacian(gray, cv2.CV_16S))[1][0, 0] ** 2)
    return Glance(None if flat else small / np.float32(length), brightness, sharpness)


class BlurGate:
    """Tells frames that are blurred for this stream."""

    def __init__(self) -> None:
        self._recent = 0.0
        self._at_s = 0.0

    def blurred(self, glance: Glance, now_s: float) -> bool:
        """Whether this frame, the next of the stream, is much less sharp than those before it."""
        faded = self._recent * 2.0 ** ((self._at_s - now_s) / _FORGOTTEN_S)
        self._recent, self._at_s = max(faded, glance.sharpness), now_s
        return max(glance.sharpness, _PLAIN) < _SHARP * self._recent
