"""Noise and surface textures: canvas weave, paper, craquelure, varnish, cells."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.uint8]
Field = NDArray[np.float32]


def as_image(pixels: ArrayLike) -> Image:
    """Pixels as uint8; the values must already be in [0, 255]."""
    return np.asarray(pixels, dtype=np.uint8)


def as_field(values: ArrayLike) -> Field:
    """Values as float32."""
    return np.asarray(values, dtype=np.float32)


def clipped(pixels: ArrayLike) -> Image:
    """Pixels clipped to [0, 255], as uint8."""
    return np.clip(pixels, 0, 255).astype(np.uint8)


def noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: float, octaves: int = 3
) -> NDArray[np.float32]:
    """Smooth random field in [0, 1].

    Parameters
    ----------
    rng : Generator
    shape : (int, int)
        H, W.
    cells : float
        Bumps along the longer side in the coarsest octave.
    octaves : int
        Number of octaves; each has twice the frequency and half the amplitude of the one before.

    Returns
    -------
    ndarray, (H, W) float32
    """
    height, width = shape
    finest_px = max(height, width) / (cells * 2 ** (octaves - 1))
    # Fields without fine bumps are computed at half the resolution, in a quarter of the time.
    halves = 2 if finest_px > 8 and min(height, width) > 8 else 1
    size = (-(-width // halves), -(-height // halves))
    total = np.zeros(size[::-1], dtype=np.float32)
    for octave in range(octaves):
        pitch = max(height, width) / (cells * 2**octave)
        rows, columns = max(2, round(height / pitch) + 1), max(2, round(width / pitch) + 1)
        grid = rng.random((rows, columns), dtype=np.float32) * np.float32(0.5**octave)
        total += cv2.resize(grid, size, interpolation=cv2.INTER_CUBIC)
    low, high = float(total.min()), float(total.max())
    field = as_field((total - low) / max(high - low, 1e-6))
    if halves == 1:
        return field
    return as_field(cv2.resize(field, (width, height), interpolation=cv2.INTER_LINEAR))


def cells(
    rng: np.random.Generator, shape: tuple[int, int], count: int, *, regular: float = 0.0
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Voronoi cells of random or regular centres.

    Parameters
    ----------
    rng : Generator
    shape : (int, int)
        H, W.
    count : int
        Approximate number of cells.
    regular : float
        Regularity of the centres in [0, 1]: 0 for random centres, 1 for a grid.

    Returns
    -------
    labels : ndarray, (H, W) int32
        Index of the cell of each pixel.
    borders : ndarray, (H, W) float32
        1 on the borders between cells, else 0.
    centres : ndarray, (N, 2) int32
        x, y of the centre of the cell with each index.
    """
    height, width = shape
    columns = max(1, round((count * width / height) ** 0.5))
    rows = max(1, round(count / columns))
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2) + 0.5
    jitter = rng.uniform(-1, 1, grid.shape) * (0.5 if regular == 0 else 0.5 * (1 - regular))
    positions = (grid + jitter) * (width / columns, height / rows)
    positions = np.clip(positions.astype(np.int32), 0, (width - 1, height - 1))
    seeds = np.full(shape, 255, dtype=np.uint8)
    seeds[positions[:, 1], positions[:, 0]] = 0
    _, labels = cv2.distanceTransformWithLabels(seeds, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    order = labels[positions[:, 1], positions[:, 0]]
    centres = np.zeros((int(labels.max()) + 1, 2), dtype=np.int32)
    centres[order] = positions
    borders = np.zeros(shape, dtype=np.float32)
    borders[:, 1:] = labels[:, 1:] != labels[:, :-1]
    borders[1:] = np.maximum(borders[1:], labels[1:] != labels[:-1])
    return labels.astype(np.int32), borders, centres


def shift_brightness(image: NDArray[np.uint8], field: NDArray[np.float32]) -> None:
    """Add a field, (H, W) in grey levels, to all channels in place."""
    image[:] = np.clip(image + field[:, :, None], 0, 255)


def weave(rng: np.random.Generator, image: NDArray[np.uint8], strength: float) -> None:
    """Add the threads of a canvas, in place; ``strength`` in grey levels."""
    height, width = image.shape[:2]
    pitch = rng.uniform(3.0, 5.0)
    x = np.sin(np.arange(width) * (2 * np.pi / pitch)) * rng.uniform(0.5, 1, width)
    y = np.sin(np.arange(height) * (2 * np.pi / pitch)) * rng.uniform(0.5, 1, height)
    shift_brightness(image, ((x[None] + y[:, None]) * strength / 2).astype(np.float32))


def grain(rng: np.random.Generator, image: NDArray[np.uint8], strength: float, cells_across: int = 5) -> None:
    """Add stains and fine grain of paper or plaster, in place; ``strength`` in grey levels."""
    shape = image.shape[:2]
    field = (noise(rng, shape, cells_across, 4) - 0.5) * (2 * strength)
    field += rng.standard_normal(shape, dtype=np.float32) * np.float32(strength * 0.25)
    shift_brightness(image, field.astype(np.float32))


def craquelure(rng: np.random.Generator, image: NDArray[np.uint8], strength: float) -> None:
    """Add the fine cracks of old paint, in place; their density varies over the image."""
    shape = (image.shape[0], image.shape[1])
    _, borders, _ = cells(rng, shape, int(rng.integers(300, 900)))
    where = np.clip(noise(rng, shape, 3) * 2 - 0.6, 0, 1)
    shift_brightness(image, -borders * where * np.float32(strength))


def age(rng: np.random.Generator, image: NDArray[np.uint8], amount: float) -> None:
    """Add yellowed varnish and darker corners, in place; ``amount`` in [0, 1]."""
    height, width = image.shape[:2]
    x = np.linspace(-1, 1, width, dtype=np.float32)
    y = np.linspace(-1, 1, height, dtype=np.float32)
    light = 1 - 0.35 * amount * (x[None] ** 2 + y[:, None] ** 2)
    tint = np.array([1 - 0.35 * amount, 1 - 0.08 * amount, 1.0], dtype=np.float32)
    image[:] = image * light[:, :, None] * tint
    if rng.random() < 0.3:
        image[:] = cv2.GaussianBlur(image, (0, 0), 0.6)
