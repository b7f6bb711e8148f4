"""A contact sheet: many images of a data set in one picture, for visual inspection before a measurement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.files import write_atomically
from nearsight.experiments.museum.art.textures import Image, as_image

_BACKGROUND = 48
_CELL_PX = 200


def _arranged(images: Sequence[Image], columns: int) -> Image:
    """Arrange images, (H, W, 3) uint8, in rows, each fitted into a square cell of 200 pixels."""
    rows = -(-len(images) // columns)
    sheet = np.full((rows * _CELL_PX, columns * _CELL_PX, 3), _BACKGROUND, dtype=np.uint8)
    for place, image in enumerate(images):
        scale = (_CELL_PX - 6) / max(image.shape[:2])
        small = as_image(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))
        height, width = small.shape[:2]
        y = place // columns * _CELL_PX + (_CELL_PX - height) // 2
        x = place % columns * _CELL_PX + (_CELL_PX - width) // 2
        sheet[y : y + height, x : x + width] = small
    return sheet


def write_contact_sheet(paths: Sequence[Path], out: str | os.PathLike[str], columns: int) -> None:
    """Read images and write their contact sheet, with ``columns`` images per row.

    Raises
    ------
    InvalidArgument
        If there are no images or no columns, a file is not a readable image, or the suffix of ``out`` is not
        a writable image type.
    """
    if not paths or columns < 1:
        raise InvalidArgument(f"a sheet needs images and columns, got {len(paths)} and {columns}")
    images = []
    for path in paths:
        image = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if image is None:
            raise InvalidArgument(
                f"{path} is not an image that can be read", advice="remove it or replace it"
            )
        images.append(as_image(image))
    target = Path(out)
    unusable = InvalidArgument(
        f"cannot write an image called {target}", advice="end the name in .png or .jpg"
    )
    if not cv2.haveImageWriter(str(target)):
        raise unusable
    encoded, data = cv2.imencode(target.suffix, _arranged(images, columns))
    if not encoded:  # a type without colours, or one of smaller pictures
        raise unusable
    write_atomically(target, data.tobytes())
