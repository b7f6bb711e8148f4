"""Tone of a picture and line patterns, for the styles that render a picture in light and shade."""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.textures import Field, Image, as_field, noise


def stripes(shape: tuple[int, int], rng: np.random.Generator, spacing: float, angle: float) -> Field:
    """Wavy parallel lines, (H, W): 0 in the middle of a line, 1 between two lines; ``spacing`` in pixels."""
    height, width = shape
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    along = (
        xs * np.float32(np.cos(angle))
        + ys * np.float32(np.sin(angle))
        + noise(rng, shape, 5) * np.float32(spacing * 4)
    )
    return as_field(np.abs((along / np.float32(spacing)) % 1 - 0.5) * 2)


def tone_of(image: Image) -> Field:
    """Lightness in [0, 1], (H, W), with equalised histogram and slightly blurred."""
    grey = cv2.equalizeHist(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    return as_field(cv2.GaussianBlur(grey, (0, 0), 1.2)) / np.float32(255)
