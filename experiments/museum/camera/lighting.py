"""Changes the light of finished photos: the common conditions of all photos of a period.

Viewpoint, blur and exposure vary from photo to photo (`photograph`). This module models the conditions that
all photos of a period share: lamps instead of daylight, dusk, a misted glass. It is applied to finished
photos, so that a photo can be compared with itself in another light.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidImage
from nearsight.experiments.museum.camera import optics

_GAMMA = 2.2
"""Gamma of the display for which cameras encode. Light adds up and is absorbed only in linear values."""
_QUALITY = 88


@dataclass(frozen=True, slots=True)
class Light:
    """Difference between a photo as taken and the same photo in another light."""

    gains: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Gains of blue, green and red, in linear light."""
    exposure: float = 1.0
    """Light that arrives, as a share of the light in the original photo."""
    blur_px: float = 0.0
    """Standard deviation of a Gaussian blur."""
    veil: float = 0.0
    """Share of the light that is scattered evenly over the photo, as by mist on a glass."""
    noise_levels: float = 0.0
    """Standard deviation of the sensor noise in grey levels; it does not decrease with the light."""


DAYLIGHT = Light()
"""Leaves photos unchanged."""


def relit(jpeg: bytes, light: Light, rng: np.random.Generator) -> bytes:
    """Render a photo in another light, as JPEG; daylight returns the same bytes.

    Raises
    ------
    InvalidImage
        If the bytes are not an image.
    """
    if light == DAYLIGHT:
        return jpeg
    pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise InvalidImage("the photo cannot be decoded")
    view = np.power(pixels.astype(np.float32) / 255, np.float32(_GAMMA))
    view = optics.defocus(view, light.blur_px)
    view *= np.array(light.gains, np.float32) * np.float32(light.exposure)
    mean = view.mean(axis=(0, 1))
    view = view * np.float32(1 - light.veil) + mean * np.float32(light.veil)
    seen: NDArray[np.float32] = np.power(np.clip(view, 0, 1), np.float32(1 / _GAMMA)) * np.float32(255)
    developed = optics.sense(seen, rng, light.noise_levels)
    _, data = cv2.imencode(".jpg", developed, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return data.tobytes()
