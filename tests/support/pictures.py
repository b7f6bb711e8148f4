"""Small synthetic pictures with enough texture to be recognised, and files that are not usable pictures."""

import struct
import zlib
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

BrokenImages = dict[str, bytes]
SIDE_PX = 160
"""Enough for 250 features of a photo; the time of nearly all tests of recognition grows with its square."""


def picture(seed: int, *, side: int = SIDE_PX) -> NDArray[np.uint8]:
    """A distinct picture ``(side, side, 3)`` per seed: smoothed noise with shapes on it."""
    return _drawn(seed, side).copy()


@lru_cache(maxsize=200)
def _drawn(seed: int, side: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (side // 12, side // 12, 3)).astype(np.uint8)
    canvas = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    for _ in range(40):
        corner, size = rng.integers(0, side, 2), rng.integers(5, side // 4, 2)
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        cv2.rectangle(canvas, corner.tolist(), (corner + size).tolist(), colour, int(rng.integers(-1, 4)))
    return np.asarray(canvas, np.uint8)


def look_alike(seed: int, of: int, *, side: int = 240, part: float = 0.4) -> NDArray[np.uint8]:
    """The picture of ``seed`` with the middle ``part`` of another, as portraits share a face."""
    pixels, edge = picture(seed, side=side), round(side * (1 - part) / 2)
    middle = slice(edge, side - edge)
    pixels[middle, middle] = picture(of, side=side)[middle, middle]
    return pixels


def jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """The pixels as a JPEG file."""
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()


@lru_cache(maxsize=200)
def picture_jpeg(seed: int, *, side: int = SIDE_PX) -> bytes:
    """`picture` as a JPEG file."""
    return jpeg(picture(seed, side=side))


@lru_cache(maxsize=200)
def photo_jpeg(seed: int, *, side: int = SIDE_PX) -> bytes:
    """The picture of ``seed``, photographed at a slight angle on a grey wall."""
    return photographed(picture(seed, side=side))


def photographed(pixels: NDArray[np.uint8]) -> bytes:
    """A square picture, photographed at a slight angle on a grey wall, as a JPEG file."""
    side = len(pixels)
    source = np.float32([[0, 0], [side, 0], [side, side], [0, side]])
    target = np.float32([[30, 40], [side + 20, 25], [side + 35, side + 40], [20, side + 30]])
    homography = cv2.getPerspectiveTransform(source, target)
    wall = cv2.warpPerspective(pixels, homography, (side + 60, side + 60), borderValue=(128, 128, 128))
    return jpeg(np.asarray(wall, np.uint8))


def bomb_png(side: int = 30_000) -> bytes:
    """A valid PNG of a few kilobytes that declares ``side`` x ``side`` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((side + 1) * 64), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def broken_images() -> BrokenImages:
    """Files that must be refused with a typed error, by their defect."""
    whole = picture_jpeg(1)
    return {
        "empty": b"",
        "truncated": whole[: len(whole) // 3],
        "no image": b"#!/bin/sh\necho this is no image\n" * 20,
        "bomb": bomb_png(),
        "1 x 1": jpeg(np.zeros((1, 1, 3), np.uint8)),
        "black": jpeg(np.zeros((SIDE_PX, SIDE_PX, 3), np.uint8)),
    }
