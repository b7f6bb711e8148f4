"""Is this quadrilateral a flat object seen by a camera? Where a view's corners land in the query."""

from __future__ import annotations

import math

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
    # Plain numbers: NumPy takes five times as long for four corners.
    points: list[list[float]] = corners.tolist()
    following = points[1:] + points[:1]
    edges = [(x_to - x, y_to - y) for (x, y), (x_to, y_to) in zip(points, following, strict=True)]
    lengths = [math.hypot(x, y) for x, y in edges]
    if min(lengths) < 1:
        return False
    for corner in range(4):
        (x, y), (x_next, y_next) = edges[corner - 1], edges[corner]
        if (x * y_next - y * x_next) / (lengths[corner - 1] * lengths[corner]) < _MIN_SINE:
            return False
    if max(lengths[side] / lengths[side - 2] for side in range(4)) > _MAX_FORESHORTENING:
        return False
    area = 0.5 * sum(x * y_to - x_to * y for (x, y), (x_to, y_to) in zip(points, following, strict=True))
    xs, ys = zip(*points, strict=True)
    overlaps = max(xs) > 0 and max(ys) > 0 and min(xs) < image_size[0] and min(ys) < image_size[1]
    return overlaps and _MIN_AREA <= area / (image_size[0] * image_size[1]) <= _MAX_AREA


def in_source_frame(
    corners: NDArray[np.float64], image_size: tuple[int, int], source_size: tuple[int, int]
) -> Corners:
    """Corners (4, 2) of the processed image in the frame of the image that was given."""
    scaled = corners * (np.array(source_size, np.float64) / np.array(image_size, np.float64))
    first, second, third, fourth = ((float(x), float(y)) for x, y in scaled)
    return first, second, third, fourth
