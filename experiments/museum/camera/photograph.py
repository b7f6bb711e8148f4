"""Simulates a photo of a picture on a wall, taken by hand with a phone.

Difficulty is one number in [0, 1]; it scales every disturbance. At 0 the picture fills the photo, straight
and sharp; at 1 it is small, oblique, blurred, badly lit and partly hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.camera import optics
from nearsight.experiments.museum.camera.bystanders import add_head
from nearsight.experiments.museum.camera.viewpoint import project, wall_to_photo
from nearsight.experiments.museum.camera.wall import Scene, hang

PHOTO_LONG_SIDE, PHOTO_SHORT_SIDE = 640, 480
DEFAULT_DIFFICULTY = 0.78
"""Recall is then about 0.94 and precision above 0.99, with 500 objects and the default pipeline."""


@dataclass(frozen=True, slots=True, eq=False)
class Photo:
    """A photo and the position of the picture in it."""

    jpeg: bytes
    """The photo as the phone stores it."""
    corners: NDArray[np.float64]
    """Corners of the picture without frame, (4, 2) float64.

    Order: top left, top right, bottom right, bottom left; x and y in pixels.
    """

    @property
    def image(self) -> NDArray[np.uint8]:
        """The decoded photo, (H, W, 3) uint8, blue-green-red."""
        return np.asarray(cv2.imdecode(np.frombuffer(self.jpeg, np.uint8), cv2.IMREAD_COLOR), dtype=np.uint8)


def take_photo(
    reference: NDArray[np.uint8], rng: np.random.Generator, difficulty: float = DEFAULT_DIFFICULTY
) -> Photo:
    """Hang the picture on a wall, choose a standpoint and take a photo.

    Parameters
    ----------
    reference : ndarray, (H, W, 3) uint8
        The picture. Frame, wall and label are derived from its pixels: they are the same in all its photos.
    rng : Generator
        Determines everything that differs from photo to photo.
    difficulty : float
        In [0, 1].

    Raises
    ------
    InvalidArgument
        If the difficulty is out of range or the reference is not a colour image.
    """
    if not 0 <= difficulty <= 1:
        raise InvalidArgument(f"difficulty must be in [0, 1], got {difficulty}")
    if reference.ndim != 3 or reference.shape[2] != 3 or reference.dtype != np.uint8:
        raise InvalidArgument(f"a reference is (H, W, 3) uint8, got {reference.shape} {reference.dtype}")
    stand = step_before(reference.shape, rng, difficulty)
    view = stand.view()
    reach = visible(view, stand.size, 2.2 * max(stand.picture_size))
    scene = hang(reference, stand.picture_size[0], reach)
    seen, corners = look_at(scene, view, stand.size)
    developed = develop(seen, rng, difficulty, corners)
    quality = round(float(rng.uniform(88 - 45 * difficulty, 94 - 12 * difficulty)))
    _, data = cv2.imencode(".jpg", developed, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return Photo(data.tobytes(), corners)


@dataclass(frozen=True, slots=True)
class Standpoint:
    """Position of a visitor before a picture, and orientation of the phone."""

    size: tuple[int, int]
    """Width and height of the photo."""
    picture_size: tuple[float, float]
    """Width and height of the picture in the photo, seen straight on."""
    angles: tuple[float, float, float]
    """Yaw, pitch and roll of the wall as the phone sees it, in radians."""
    aim: tuple[float, float]
    """Position of the picture's middle, as a share of the photo's width and height."""

    def view(self) -> NDArray[np.float64]:
        """Homography from the wall, in pixels from the picture's middle, to the photo."""
        return wall_to_photo(self.angles, 1.0, self.size, self.aim)


def step_before(
    shape: tuple[int, ...], rng: np.random.Generator, difficulty: float, size: tuple[int, int] | None = None
) -> Standpoint:
    """Choose a standpoint before a picture (H, W, 3).

    Without a ``size``, the orientation of the phone mostly matches the picture: 640 x 480 or 480 x 640.
    """
    height, width = shape[:2]
    if size is None:
        upright = height > width if rng.random() < 0.85 else width > height
        size = (PHOTO_SHORT_SIDE, PHOTO_LONG_SIDE) if upright else (PHOTO_LONG_SIDE, PHOTO_SHORT_SIDE)
    largest = min(size[0] / width, size[1] / height)
    share = float(rng.uniform(0.86 - 0.5 * difficulty, 0.92 - 0.1 * difficulty))
    picture_width = largest * share * width
    yaw, pitch = rng.normal(0, np.radians(4 + 22 * difficulty)), rng.normal(0, np.radians(2 + 9 * difficulty))
    roll = rng.normal(0, np.radians(1 + 4.5 * difficulty))
    limit = np.radians(52)
    angles = float(np.clip(yaw, -limit, limit)), float(np.clip(pitch, -limit / 2, limit / 2)), float(roll)
    slack = (1 - share) / 2 + 0.1 * difficulty
    aim = (0.5 + float(rng.uniform(-slack, slack)) * 0.9, 0.5 + float(rng.uniform(-slack, slack)) * 0.9)
    return Standpoint(size, (picture_width, picture_width * height / width), angles, aim)


def look_at(
    scene: Scene, view: NDArray[np.float64], size: tuple[int, int]
) -> tuple[optics.View, NDArray[np.float64]]:
    """The scene under a homography from the picture's middle, and the corners of the picture in it."""
    x, y = scene.corners.mean(axis=0)
    homography = view @ np.array([[1, 0, -x], [0, 1, -y], [0, 0, 1]])
    seen = cv2.warpPerspective(
        scene.image, homography, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return seen.astype(np.float32), project(homography, scene.corners)


def visible(view: NDArray[np.float64], size: tuple[int, int], limit: float) -> tuple[float, float]:
    """Half width and half height of the visible wall around the picture's middle, at most ``limit`` [px]."""
    edges = np.array([(0, 0), (size[0], 0), size, (0, size[1])], dtype=np.float64)
    seen = np.minimum(
        np.abs(project(np.asarray(np.linalg.inv(view), dtype=np.float64), edges)).max(axis=0) + 8, limit
    )
    return float(seen[0]), float(seen[1])


def develop(
    view: optics.View,
    rng: np.random.Generator,
    difficulty: float,
    corners: NDArray[np.float64],
    *,
    moved: tuple[float, float] | None = None,
    grain: np.random.Generator | None = None,
) -> NDArray[np.uint8]:
    """Apply the effects of bystanders, light, lens and sensor to a view.

    Parameters
    ----------
    view : ndarray, (H, W, 3) float32
        Is modified.
    rng : Generator
        Determines all effects; the same state produces the same effects.
    difficulty : float
        In [0, 1].
    corners : ndarray, (4, 2)
        Corners of the picture.
    moved : (float, float), optional
        Distance [px] and direction [rad] of the view's movement during the exposure; random by default.
    grain : Generator, optional
        Random stream of the sensor noise, if the noise must not repeat with ``rng``.

    Returns
    -------
    ndarray, (H, W, 3) uint8
    """
    width = view.shape[1]
    if rng.random() < 0.35 * difficulty:
        for _ in range(int(rng.integers(1, 3))):
            add_head(view, rng, float(rng.uniform(0.1, 0.2 + 0.35 * difficulty)))
    if rng.random() < 0.15 + 0.4 * difficulty:
        spot = corners.mean(axis=0) + rng.normal(0, 0.16 * width, 2)
        place = (float(spot[0]) / width, float(spot[1]) / width)
        optics.glare(
            view,
            place,
            float(rng.uniform(0.02, 0.04 + 0.08 * difficulty)),
            float(rng.uniform(0.2, 0.4 + 0.9 * difficulty)),
        )
    if rng.random() < 0.25 * difficulty:
        optics.reflection(view, rng, float(rng.uniform(0.05, 0.1 + 0.25 * difficulty)))
    view = optics.defocus(view, float(rng.gamma(1.5, 0.15 + 0.9 * difficulty)) * 0.6)
    by_chance = float(rng.gamma(1.3, 0.4 + 4.0 * difficulty)), float(rng.uniform(0, np.pi))
    view = optics.motion_blur(view, *(moved or by_chance))
    balance = np.exp(rng.normal(0, 0.02 + 0.1 * difficulty, 3)).astype(np.float32)
    # The automatic exposure of the phone corrects a part of the difference.
    metered = (115 / max(float(view.mean()), 20)) ** 0.6
    gain = metered * float(np.exp(rng.normal(-0.05, 0.06 + 0.3 * difficulty)))
    contrast, falloff = rng.uniform(1 - 0.4 * difficulty, 1.05), rng.uniform(0.05, 0.15 + 0.35 * difficulty)
    optics.expose(
        view, balance * np.float32(gain), float(contrast), optics.vignette(view.shape, float(falloff))
    )
    noise_levels = float(rng.uniform(1, 2 + 10 * difficulty))
    return optics.sense(view, grain or rng, noise_levels)
