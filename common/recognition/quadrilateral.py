"""Is this quadrilateral a flat object seen by a camera? Where a view's corners land in the query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.results import Corners

_MIN_AREA = 0.003
"""Of the query image: below, ten inliers at 5 px fit into the object by accident."""
_MAX_AREA = 50.0
"""Of the query image: a close-up shows at least a fiftieth of the object."""
_MAX_FORESHORTENING = 6.0
"""Largest ratio of opposite sides; a photo under 80 degrees stays below."""
_MIN_SINE = 0.17
"""Of a corner's angle: 10 degrees."""


def project_corners(homography: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64] | None:
    """Corners (4, 2) of an image of ``size`` under the homography; None if one is behind the camera."""
    width, height = size
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64)
    projected = corners @ (homography / homography[2, 2] if homography[2, 2] else homography).T
    if not np.isfinite(projected).all() or (projected[:, 2] <= 1e-6).any():
        return None
    return np.asarray(projected[:, :2] / projected[:, 2:])


def is_plausible(corners: NDArray[np.float64], image_size: tuple[int, int]) -> bool:
    """Whether corners (4, 2), clockwise from the top left, are a flat object seen from its front.

    Convex, not mirrored, not needle-shaped, neither tiny nor gigantic, and overlapping the image. ORB tells a
    picture from its mirror image, so a mirrored quadrilateral is a false match, not a reflection.
    """
    edges = np.roll(corners, -1, axis=0) - corners
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    if (lengths < 1).any():
        return False
    following = np.roll(edges, -1, axis=0)
    turns = edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0]
    if (turns / (lengths * np.roll(lengths, -1)) < _MIN_SINE).any():
        return False
    opposite = lengths / np.roll(lengths, 2)
    if opposite.max() > _MAX_FORESHORTENING:
        return False
    x, y = corners[:, 0], corners[:, 1]
    area = 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))
    low, high = corners.min(axis=0), corners.max(axis=0)
    overlaps = bool((high > 0).all() and low[0] < image_size[0] and low[1] < image_size[1])
    return overlaps and _MIN_AREA <= area / (image_size[0] * image_size[1]) <= _MAX_AREA


def in_source_frame(
    corners: NDArray[np.float64], image_size: tuple[int, int], source_size: tuple[int, int]
) -> Corners:
    """Corners (4, 2) of the processed image in the frame of the image that was given."""
    scaled = corners * (np.array(source_size, np.float64) / np.array(image_size, np.float64))
    first, second, third, fourth = ((float(x), float(y)) for x, y in scaled)
    return first, second, third, fourth
