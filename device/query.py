"""What is put to a tier: the photo as a file of bounded size, or features.

Recognition works on grey images of at most 640 pixels, so that is what travels: a 12 megapixel photo of 5 MB
becomes some 40 KB. Files that are small already are not decoded here at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import ImageTooLarge, InternalError, NotFound
from nearsight.common.recognition.image_header import declared_size
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.recognizer_settings import UploadSettings

QuerySource = bytes | Path | NDArray[np.uint8] | Features
"""What `snapshot` makes of an application's image: nothing that the application can still change."""


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One question, ready for the network.

    Attributes
    ----------
    content : bytes or Features
        An image file, or features that somebody else extracted.
    scale : (float, float)
        Pixels of the application's image per pixel of the one that travels, along x and y.
    otherwise : callable, optional
        Makes the same question with the image in it, for a tier that finds nothing in the features: it may
        look harder at an image.
    looked_at : Features, optional
        In which the device found nothing itself; a tier's answer says what they are of.
    looked_for : frozenset of str
        Objects that the device knew then.
    """

    content: bytes | Features
    scale: tuple[float, float] = (1.0, 1.0)
    otherwise: Callable[[], Query] | None = None
    looked_at: Features | None = None
    looked_for: frozenset[str] = frozenset()

    def in_source(self, found: RecognizedObject) -> RecognizedObject:
        """The answer with its corners in pixels of the application's image."""
        if self.scale == (1.0, 1.0):
            return found
        top_left, top_right, bottom_right, bottom_left = (
            (x * self.scale[0], y * self.scale[1]) for x, y in found.corners
        )
        return replace(found, corners=(top_left, top_right, bottom_right, bottom_left))


def snapshot(image: ImageSource | Features) -> QuerySource:
    """Take hold of an image so that the application may reuse its buffer as soon as ``recognize`` returns.

    Raises
    ------
    TypeError
        If it is nothing that could be an image.
    """
    if isinstance(image, np.ndarray):
        return np.array(image)
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, (bytes, Features)):
        return image
    if isinstance(image, (str, os.PathLike)):
        return Path(image)
    raise TypeError(f"an image is bytes, a path or an array (H, W[, 3]) uint8, not {type(image).__name__}")


class Photo:
    """An image of the application on its way to a lookup or to the network. For one thread at a time.

    Parameters
    ----------
    source : bytes, path or ndarray
        What `snapshot` made.
    settings : UploadSettings
        How it is made ready for the network.

    Raises
    ------
    NotFound, ImageTooLarge
        If it is a path that cannot be read, or a file that is too large.
    """

    def __init__(self, source: bytes | Path | NDArray[np.uint8], settings: UploadSettings) -> None:
        self._source = _read(source, settings) if isinstance(source, Path) else source
        self._settings = settings
        self._decoded: dict[int, GrayImage] = {}

    @cached_property
    def file(self) -> bytes | None:
        """The image file, if it may travel as it is; None if one must be encoded.

        Raises
        ------
        InvalidImage
            If this is no image, or an incomplete one.
        """
        source = self._source
        return source if isinstance(source, bytes) and _may_pass(source, self._settings) else None

    def gray(self, longest_side: int) -> GrayImage:
        """The pixels; decoded once.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As `load_image`.
        """
        if longest_side not in self._decoded:
            limits = ImageLimits(self._settings.max_bytes, self._settings.max_pixels, longest_side)
            self._decoded[longest_side] = load_image(self._source, limits)
        return self._decoded[longest_side]

    def as_image(self) -> Query:
        """The question with the image in it.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As `load_image`.
        """
        file = self.file
        if file is not None:
            return Query(file)
        image = self.gray(self._settings.longest_side)
        scale = (image.source_size[0] / image.size[0], image.source_size[1] / image.size[1])
        return Query(_encode(image, self._settings.jpeg_quality), scale)


def prepare_query(source: QuerySource, settings: UploadSettings) -> Query:
    """Make an image ready for the network.

    Raises
    ------
    InvalidImage, ImageTooLarge, NotFound
        As `load_image`.
    """
    return Query(source) if isinstance(source, Features) else Photo(source, settings).as_image()


def _read(path: Path, settings: UploadSettings) -> bytes:
    try:
        if not path.is_file():
            raise NotFound(f"there is no image file {str(path)!r}", advice="check the path")
        size_bytes = path.stat().st_size
        if size_bytes > settings.max_bytes:
            raise ImageTooLarge(
                f"{str(path)!r} has {size_bytes} bytes, the limit is {settings.max_bytes}",
                advice="send a smaller file",
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise NotFound(
            f"cannot read {str(path)!r}: {error}", advice="check the path and its rights"
        ) from error


def _may_pass(data: bytes, settings: UploadSettings) -> bool:
    if not data or len(data) > settings.pass_through_bytes:
        return False  # `load_image` judges what is empty or large
    return max(declared_size(data)) <= settings.longest_side


def _encode(image: GrayImage, quality: int) -> bytes:
    encoded, data = cv2.imencode(".jpg", image.pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not encoded:
        raise InternalError(f"an image of {image.size} pixels cannot be encoded as JPEG")
    return data.tobytes()
