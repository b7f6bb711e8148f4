"""Frames of a camera before a picture on a wall, and answers about them."""

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.device.recognition import Recognition
from support.pictures import picture

WIDTH, HEIGHT, SIDE = 320, 240, 120
_WALL = np.random.default_rng(1).integers(110, 140, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def frame(seed: int = 1, left: float = 60, top: float = 50, turned: float = 0.0) -> NDArray[np.uint8]:
    """A frame, (240, 320, 3) uint8, with the picture of a seed at a distance from the left and the top."""
    image = _WALL.copy()
    moved = _placed(left, top, turned)
    size = (WIDTH, HEIGHT)
    hung = cv2.warpAffine(picture(seed, side=SIDE), moved, size, image, borderMode=cv2.BORDER_TRANSPARENT)
    return np.asarray(hung, np.uint8)


def corners(left: float = 60, top: float = 50, turned: float = 0.0) -> Corners:
    """Corners of the picture in `frame`."""
    square = np.array([(0, 0), (SIDE, 0), (SIDE, SIDE), (0, SIDE)], np.float64)
    one, two, three, four = (square @ (moved := _placed(left, top, turned))[:, :2].T + moved[:, 2]).tolist()
    return tuple(one), tuple(two), tuple(three), tuple(four)


def _placed(left: float, top: float, turned: float) -> NDArray[np.float64]:
    cosine, sine = np.cos(turned), np.sin(turned)
    return np.array([[cosine, -sine, left], [sine, cosine, top]])


def gray(image: NDArray[np.uint8]) -> GrayImage:
    """A frame in grey levels, as the tracker processes it."""
    return GrayImage(np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)), (image.shape[1], image.shape[0]))


def blurred(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame with the motion blur of a fast turn."""
    return np.asarray(cv2.blur(image, (25, 1)), np.uint8)


def recognition(name: str = "0042", where: Corners | None = None) -> Recognition:
    """An answer; without corners, as of a network."""
    return Recognition(RecognizedObject(name, "Night", 1, 0.9, 30, where), "edge", 40.0)


UNKNOWN = Recognition(None, "cloud", 80.0)
