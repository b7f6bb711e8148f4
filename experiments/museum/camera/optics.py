"""What camera and light do to a view: blur, glare, exposure, white balance, vignette, sensor noise.

Images are (H, W, 3) float32 in [0, 255], blue-green-red, until the sensor rounds them.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.textures import Field, as_field, clipped

View = Field


def defocus(view: View, sigma_px: float) -> View:
    """Out of focus: a Gaussian of the given standard deviation."""
    return as_field(cv2.GaussianBlur(view, (0, 0), sigma_px)) if sigma_px > 0.25 else view


def motion_blur(view: View, length_px: float, angle: float) -> View:
    """A hand that moved while the shutter was open."""
    if length_px < 1.5:
        return view
    size = int(np.ceil(length_px)) | 1
    kernel = np.zeros((size, size), dtype=np.float32)
    middle, dx, dy = size / 2, np.cos(angle) * length_px / 2, np.sin(angle) * length_px / 2
    start, end = ((round((middle + s * dx) * 16), round((middle + s * dy) * 16)) for s in (-1, 1))
    cv2.line(kernel, start, end, 1.0, 1, cv2.LINE_AA, 4)
    blurred = cv2.filter2D(view, -1, kernel / max(float(kernel.sum()), 1e-6), borderType=cv2.BORDER_REFLECT)
    return as_field(blurred)


def spot_light(shape: tuple[int, int], centre: tuple[float, float], radius: float) -> NDArray[np.float32]:
    """A round highlight, 1 in its middle; centre and radius relative to the view's width."""
    height, width = shape
    xs = (np.arange(width, dtype=np.float32) / width - centre[0]) / radius
    ys = (np.arange(height, dtype=np.float32) / width - centre[1]) / radius
    return (np.exp(-(xs**2) / 2)[None] * np.exp(-(ys**2) / 2)[:, None]).astype(np.float32)


def glare(view: View, centre: tuple[float, float], radius: float, strength: float) -> None:
    """Light reflected by varnish or glass, in place: a veil around a blown-out core."""
    height, width = view.shape[:2]
    core = spot_light((height, width), centre, radius)
    view += (core * (255 * strength))[:, :, None]


def reflection(view: View, rng: np.random.Generator, strength: float) -> None:
    """A window mirrored faintly in the glass, in place."""
    height, width = view.shape[:2]
    small = np.zeros((height // 4, width // 4), dtype=np.float32)
    x, y = rng.uniform(0.1, 0.7) * width / 4, rng.uniform(0.1, 0.6) * height / 4
    w, h = rng.uniform(0.1, 0.25) * width / 4, rng.uniform(0.2, 0.4) * height / 4
    lean = rng.uniform(-0.2, 0.2) * w
    for column in (0, 0.55):
        quad = np.array(
            [
                (x + w * column, y),
                (x + w * (column + 0.45), y),
                (x + w * (column + 0.45) + lean, y + h),
                (x + w * column + lean, y + h),
            ]
        )
        cv2.fillPoly(small, [quad.round().astype(np.int32)], 1.0)
    small = cv2.GaussianBlur(small, (0, 0), 2.0)
    view += cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)[:, :, None] * np.float32(
        255 * strength
    )


def expose(view: View, gain: float, balance: NDArray[np.float32], contrast: float) -> None:
    """Exposure, white balance by channel and contrast around mid-grey, in place."""
    view *= balance * np.float32(gain)
    view -= 118
    view *= np.float32(contrast)
    view += 118


def vignette(view: View, strength: float) -> None:
    """Darker towards the corners, in place."""
    height, width = view.shape[:2]
    xs, ys = np.linspace(-1, 1, width, dtype=np.float32), np.linspace(-1, 1, height, dtype=np.float32)
    view *= (1 - np.float32(strength) * (xs[None] ** 2 + ys[:, None] ** 2) / 2)[:, :, None]


def sense(view: View, rng: np.random.Generator, noise_levels: float) -> NDArray[np.uint8]:
    """Sensor noise, stronger in the dark, luminance mostly; then 8 bits."""
    height, width = view.shape[:2]
    luminance = rng.standard_normal((height, width), dtype=np.float32) * np.float32(noise_levels)
    coarse = rng.standard_normal((height // 2, width // 2, 3), dtype=np.float32) * np.float32(
        noise_levels * 0.7
    )
    view += luminance[:, :, None]
    view += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    return clipped(view)
