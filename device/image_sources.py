"""The image types that an application may pass, and their conversion: files, arrays, Pillow images.

Pillow is not a dependency: its images are recognised only if the application has imported it.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidImage
from nearsight.common.recognition.images import ImageSource, check_pixels
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits

_GREY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"})
"""Pillow's modes with a known range of values."""


class BinaryFile(Protocol):
    """A file object, such as `io.BytesIO`, or a file that was opened with ``"rb"``."""

    def read(self, size: int = ..., /) -> bytes:
        """Read at most this many bytes from the current position."""


class PillowImage(Protocol):
    """An image of Pillow."""

    @property
    def mode(self) -> str:
        """Storage format of its pixels."""

    def getexif(self) -> Any:
        """Its EXIF data."""


AnyImage = ImageSource | BinaryFile | PillowImage
"""Image types that an application may pass."""
QuerySource = bytes | Path | NDArray[np.uint8] | Features | InvalidArgument
"""Result of `snapshot`: a value that the application cannot change any more, or the error."""


def snapshot(image: AnyImage | Features, limits: ImageLimits) -> QuerySource:
    """Copy an image, so that the application may reuse its buffer as soon as ``recognize`` returns.

    Parameters
    ----------
    image : bytes, path, ndarray, binary file, Pillow image or Features
        A file object is read from its position to its end.
    limits : ImageLimits
        Reading of a file object stops one byte beyond the limit.

    Raises
    ------
    TypeError
        If it has an unsupported type.
    """
    if isinstance(image, (bytes, Features)):
        return image
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        return Path(image)
    if isinstance(image, np.ndarray):
        return np.array(image)
    try:
        plain = plain_image(image, limits)
    except InvalidArgument as error:
        return error
    if isinstance(plain, (bytes, np.ndarray)):  # from a file object or an image of Pillow
        return plain
    raise TypeError(_no_image(image))


def plain_image(image: Any, limits: ImageLimits) -> Any:
    """A Pillow image as an array, a file object as its bytes; any other value unchanged.

    Raises
    ------
    InvalidImage, ImageTooLarge
        If its content is empty, cannot be decoded, or is too large.
    TypeError
        If it is a file object of text, or an asynchronous one.
    """
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(image, pillow.Image):
        return _pixels_of(image, limits)
    if callable(getattr(image, "read", None)) and not isinstance(image, os.PathLike):
        return _content_of(image, limits.max_bytes)
    return image


def _pixels_of(image: Any, limits: ImageLimits) -> NDArray[np.uint8]:
    """The upright pixels, ``(H, W)`` grey or ``(H, W, 3)`` blue, green, red; transparency is dropped."""
    from PIL import ImageOps  # noqa: PLC0415  the application has imported Pillow

    check_pixels(image.size, limits)
    if image.mode not in _GREY | _COLOUR:
        raise InvalidImage(
            f"a Pillow image of mode {image.mode} has no 8-bit pixels",
            advice="scale its values to 0..255, and give Image.fromarray(values.astype('uint8'))",
        )
    try:
        upright = ImageOps.exif_transpose(image)
        pixels = np.asarray(upright.convert("L" if image.mode in _GREY else "RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's errors for a damaged file
        raise InvalidImage(
            f"Pillow cannot decode the image: {error}", advice="send the original file"
        ) from error
    return np.ascontiguousarray(pixels[..., ::-1] if pixels.ndim == 3 else pixels)


def _content_of(file: Any, max_bytes: int) -> bytes:
    content = bytearray()
    while len(content) <= max_bytes:
        part = file.read(max_bytes + 1 - len(content))
        if not isinstance(part, bytes):
            if inspect.iscoroutine(part):
                part.close()
            what = "must be awaited" if inspect.isawaitable(part) else f"gives {type(part).__name__}"
            raise TypeError(
                f"read() of this {type(file).__name__} {what}, not bytes: give its bytes, or open it as 'rb'"
            )
        if not part:
            break
        content += part
    if not content:
        raise InvalidImage(
            f"the {type(file).__name__} is empty, or at its end", advice="go to its beginning: seek(0)"
        )
    return bytes(content)


def _no_image(image: object) -> str:
    """The error text for an unsupported type, with advice."""
    if image is None:
        return "the image is None, which is what cv2.imread and VideoCapture.read give if they fail"
    advice = ": numpy.asarray(image) makes an array of it" if hasattr(image, "__array__") else ""
    return (
        "an image is bytes, a path, an array (H, W[, 3]) uint8, a binary file or a Pillow image, "
        f"not {type(image).__name__}{advice}"
    )
