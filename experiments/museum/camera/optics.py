"""Effects of camera and light on a view: blur, glare, exposure, white balance, vignette, sensor noise.

Images are (H, W, 3) float32 in [0, 255], blue-green-red. `sense` rounds them to uint8.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.textures import Field, as_field, clipped

View = Field


def defocus(view: View, sigma_px: float) -> View:
    """Defocus: a Gaussian blur of the given standard deviation."""
    return as_field(cv2.GaussianBlur(view, (0, 0), sigma_px)) if sigma_px > 0.25 else view


def motion_blur(view: View, length_px: float, angle: float) -> View:
    """Motion blur: the camera moved by ``length_px`` in direction ``angle`` [rad] during the exposure."""
    if length_px < 1.5:
        return view
    size = int(np.ceil(length_px)) | 1
    kernel = np.zeros((size, size), dtype=np.float32)
    middle, dx, dy = size / 2, np.cos(angle) * length_px / 2, np.sin(angle) * length_px / 2
    start, end = ((round((middle + s * dx) * 16), round((middle + s * dy) * 16)) for s in (-1, 1))
    cv2.line(kernel, start, end, 1.0, 1, cv2.LINE_AA, 4)
    blurred = cv2.filter2D(view, -1, kernel / max(float(kernel.sum()), 1e-6), borderType=cv2.BORDER_REFLECT)
    return as_field(blurred)


def glare(view: View, centre: tuple[float, float], radius: float, strength: float) -> None:
    """Add light reflected by varnish or glass, in place: a veil around an overexposed core.

    Centre and radius are relative to the view's width.
    """
    height, width = view.shape[:2]
    xs = (np.arange(width, dtype=np.float32) / width - centre[0]) / radius
    ys = (np.arange(height, dtype=np.float32) / width - centre[1]) / radius
    core = (np.exp(-(xs**2) / 2)[None] * np.exp(-(ys**2) / 2)[:, None]).astype(np.float32)
    view += (core * (255 * strength))[:, :, None]


def reflection(view: View, rng: np.random.Generator, strength: float) -> None:
    """Add the faint reflection of a window in the glass, in place."""
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


def vignette(shape: tuple[int, ...], strength: float) -> Field:
    """Relative illumination, (H, W): decreases towards the corners."""
    ys, xs = (np.linspace(-1, 1, count, dtype=np.float32) for count in shape[:2])
    return as_field(1 - np.float32(strength / 2) * (xs[None] ** 2 + ys[:, None] ** 2))


def expose(view: View, gains: NDArray[np.float32], contrast: float, light: Field) -> None:
    """Apply exposure per channel, contrast around mid-grey and vignette, in place."""
    view *= light[:, :, None] * (gains * np.float32(contrast))
    view += np.float32(118 * (1 - contrast))


@cache
def _grain_plane() -> Field:
    """Gaussian noise, of which photos use random pieces: new noise would take a third of a photo's time."""
    return np.random.default_rng(0).standard_normal((1536, 1536), dtype=np.float32)


def sense(view: View, rng: np.random.Generator, noise_levels: float) -> NDArray[np.uint8]:
    """Add sensor noise (fine in luminance, coarse in colour) and round to uint8."""
    height, width = view.shape[:2]
    plane = _grain_plane()

    def piece(rows: int, columns: int) -> Field:
        y, x = (
            int(rng.integers(side - count)) for side, count in zip(plane.shape, (rows, columns), strict=True)
        )
        return plane[y : y + rows, x : x + columns]

    coarse = cv2.merge([piece(height // 2, width // 2) for _ in range(3)])
    grain = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR) * np.float32(0.7)
    grain += piece(height, width)[:, :, None]
    view += grain * np.float32(noise_levels)
    return clipped(view)
