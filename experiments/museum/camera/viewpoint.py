"""Geometry of the phone's viewpoint: the homography from a wall, seen straight on, to the photo."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FOCAL_LENGTH = 0.85
"""Focal length relative to the photo's longer side: the wide lens of a phone."""


def wall_to_photo(
    angles: tuple[float, float, float],
    magnification: float,
    photo_size: tuple[int, int],
    aim: tuple[float, float],
) -> NDArray[np.float64]:
    """Homography of a pinhole camera before a plane, whose origin is the centre of rotation.

    Parameters
    ----------
    angles : (float, float, float)
        Yaw, pitch and roll of the wall relative to the camera, in radians.
    magnification : float
        Pixels of the photo per pixel of the wall at the origin.
    photo_size : (int, int)
        Width and height.
    aim : (float, float)
        Position of the origin in the photo, as a share of width and height.

    Returns
    -------
    ndarray, (3, 3) float64
    """
    cy, sy, cp, sp, cr, sr = (f(angle) for angle in angles for f in (np.cos, np.sin))
    around_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    around_x = np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    around_z = np.array([[cr, -sr, 0], [sr, cr, 0], [0, 0, 1]])
    turn = around_z @ around_x @ around_y
    focal = FOCAL_LENGTH * max(photo_size)
    distance = focal / magnification
    plane = np.column_stack([turn[:, 0], turn[:, 1], (0, 0, distance)])
    camera = np.array([[focal, 0, aim[0] * photo_size[0]], [0, focal, aim[1] * photo_size[1]], [0, 0, 1]])
    return np.asarray(camera @ plane)


def project(homography: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Transform points, (N, 2), by a homography."""
    lifted = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return np.asarray(lifted[:, :2] / lifted[:, 2:])
