"""Loads images: a file, bytes or an array becomes an image of bounded size, grey or (for networks) in colour.

EXIF orientation is applied, as image viewers do, so ``source_size`` and the corners of answers refer to the
upright image. Arrays have no EXIF data and are used unchanged.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import ImageTooLarge, InvalidImage, NotFound
from nearsight.common.recognition.image_header import JPEG_SOI, declared_size
from nearsight.common.recognition.settings import ImageLimits

ImageSource = bytes | bytearray | memoryview | str | os.PathLike[str] | NDArray[np.uint8]
_Loaded = tuple[NDArray[np.uint8], tuple[int, int]]
"""Pixels, and width and height of the upright source image."""

_REDUCED = {
    1: cv2.IMREAD_GRAYSCALE,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}
"""OpenCV's flags for decoding at a fraction of the size; in colour together with `IMREAD_COLOR`."""
_DEFAULT_LIMITS = ImageLimits()


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """An image of bounded size."""

    pixels: NDArray[np.uint8]
    """(H, W) uint8, grey; or (H, W, 3) uint8: blue, green, red. At most ``limits.longest_side`` a side."""
    source_size: tuple[int, int]
    """Width and height in pixels of the upright source image, before scaling."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of ``pixels``."""
        return self.pixels.shape[1], self.pixels.shape[0]


class GrayImage(Image):
    """A grey image ``(H, W)``, ready for feature extraction."""


class ColourImage(Image):
    """An image ``(H, W, 3)`` in colour: blue, green, red. A grey source has three equal channels."""


def load_image(source: ImageSource, limits: ImageLimits = _DEFAULT_LIMITS) -> GrayImage:
    """Load a file, bytes or an array as a grey image of bounded size.

    Parameters
    ----------
    source : bytes, path or ndarray
        A JPEG, PNG or WebP file as bytes; the path of such a file; or pixels ``(H, W)``, ``(H, W, 3)`` or
        ``(H, W, 4)`` uint8, the channels in OpenCV's order (blue, green, red, and alpha, which is dropped).
    limits : ImageLimits
        Limits that are checked before decoding, and the size after it.

    Raises
    ------
    InvalidImage
        If the source is not an image, or is incomplete or damaged.
    ImageTooLarge
        If it has more bytes or pixels than ``limits`` allow, or is a JPEG with too many scans for its size.
    NotFound
        If the path has no readable file.
    """
    return GrayImage(*_loaded(source, limits, colour=False))


def load_colour(source: ImageSource, limits: ImageLimits = _DEFAULT_LIMITS) -> ColourImage:
    """Load an image in colour; otherwise as `load_image`."""
    return ColourImage(*_loaded(source, limits, colour=True))


def _loaded(source: ImageSource, limits: ImageLimits, *, colour: bool) -> _Loaded:
    if isinstance(source, np.ndarray):
        return _from_array(source, limits, colour=colour)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(source), limits, colour=colour)
    if isinstance(source, (str, os.PathLike)):
        return _from_bytes(read_image_file(source, limits), limits, colour=colour)
    raise InvalidImage(
        f"a {type(source).__name__} is not an image",
        advice="give bytes, a path or an array (H, W[, 3]) uint8",
    )


def read_image_file(source: str | os.PathLike[str], limits: ImageLimits = _DEFAULT_LIMITS) -> bytes:
    """Read the bytes of an image file without decoding them.

    Raises
    ------
    ImageTooLarge
        If the file is larger than ``limits`` allow; it is not read then.
    NotFound
        If the path has no readable file.
    """
    path = Path(source)
    try:
        if not path.is_file():
            raise NotFound(f"there is no image file {str(path)!r}", advice="check the path")
        _check_bytes(path.stat().st_size, limits)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise NotFound(
            f"cannot read {str(path)!r}: {error}", advice="check the path and its permissions"
        ) from error


def _check_bytes(size: int, limits: ImageLimits) -> None:
    if size > limits.max_bytes:
        raise ImageTooLarge(
            f"the image has {size} bytes, the limit is {limits.max_bytes}", advice="send a smaller file"
        )


def check_pixels(size: tuple[int, int], limits: ImageLimits) -> None:
    """Raise `ImageTooLarge` if an image of this width and height has more pixels than ``limits`` allow."""
    if size[0] * size[1] > limits.max_pixels:
        raise ImageTooLarge(
            f"the image has {size[0]} x {size[1]} pixels, the limit is {limits.max_pixels} in total",
            advice="scale it down first",
        )


def _from_bytes(data: bytes, limits: ImageLimits, *, colour: bool) -> _Loaded:
    if not data:
        raise InvalidImage("the image is empty", advice="send a JPEG, PNG or WebP file")
    _check_bytes(len(data), limits)
    declared = declared_size(data)
    check_pixels(declared, limits)
    # Of other formats OpenCV decodes all pixels anyway, and then samples a few of them, which adds noise.
    divisor = _divisor(declared, limits) if data.startswith(JPEG_SOI) else 1
    way = _REDUCED[divisor] | (cv2.IMREAD_COLOR if colour else 0)
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), way)
    except cv2.error as error:
        raise InvalidImage("the image cannot be decoded", advice="send the original file") from error
    if pixels is None or pixels.size == 0:
        raise InvalidImage("the image cannot be decoded", advice="send the original file")
    turned = (pixels.shape[1] > pixels.shape[0]) != (declared[0] > declared[1])
    upright = declared[::-1] if turned else declared
    return _scaled(pixels.astype(np.uint8, copy=False), limits), upright


def _divisor(declared: tuple[int, int], limits: ImageLimits) -> int:
    """Largest factor by which the decoder may shrink a JPEG image.

    The result must be at least as large as the processed size, and its sides must still show whether EXIF
    orientation swapped them.
    """
    width, height = declared
    for divisor in (8, 4, 2):
        ambiguous = width != height and -(-width // divisor) == -(-height // divisor)
        if max(declared) // divisor >= limits.longest_side and not ambiguous:
            return divisor
    return 1


def _from_array(array: NDArray[np.uint8], limits: ImageLimits, *, colour: bool) -> _Loaded:
    if (problem := _problem_of(array)) is not None:
        raise problem
    if array.ndim == 3 and array.shape[2] == 4:  # drop alpha; transparent pixels still have colours
        array = array[:, :, :3]
    size = (array.shape[1], array.shape[0])
    check_pixels(size, limits)
    if colour != (array.ndim == 3):
        array = np.asarray(
            cv2.cvtColor(array, cv2.COLOR_GRAY2BGR if colour else cv2.COLOR_BGR2GRAY), np.uint8
        )
    return _scaled(np.ascontiguousarray(array, np.uint8), limits), size


def _problem_of(array: NDArray[Any]) -> InvalidImage | None:
    """The error for an array that is not an image, with advice how to convert it; None for a valid image."""
    if not array.size:
        return InvalidImage(f"the image is empty: {array.shape}", advice="give an array with pixels")
    advice = _shape_advice(array.shape) or _type_advice(array)
    if not advice:
        return None
    given = f"{array.shape} {array.dtype}"
    return InvalidImage(f"an array must be (H, W), (H, W, 3) or (H, W, 4) uint8, got {given}", advice=advice)


def _shape_advice(shape: tuple[int, ...]) -> str:
    """Advice for an array whose shape is not that of an image; empty if the shape is valid."""
    match shape:
        case (_, _) | (_, _, 3 | 4):
            return ""
        case (_, _, 1):
            return "give image[:, :, 0]"
        case (1, _, _):
            return "give image[0]"
        case (3 | 4, _, _):
            return "the channels come last: image.transpose(1, 2, 0)"
        case (_, _, _, _):
            return "give one image at a time: for image in batch"
    return "give an array of rows and columns of pixels, or the image file"


def _type_advice(array: NDArray[Any]) -> str:
    """Advice for an array whose values are not those of an image; empty if they are valid."""
    if array.dtype == np.uint8:
        return ""
    if array.dtype == np.bool_:
        return "this is a mask: give the photo, or mask.astype('uint8') * 255"
    if array.dtype == np.uint16:
        return "scale 16 bits to 8: (image // 257).astype('uint8')"
    to_one = np.issubdtype(array.dtype, np.floating) and array.max() <= 1
    return f"convert it: ({'image * 255' if to_one else 'image'}).clip(0, 255).astype('uint8')"


def _scaled(pixels: NDArray[np.uint8], limits: ImageLimits) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    scale = limits.longest_side / max(height, width)
    if scale >= 1:
        return pixels
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
