"""Reference that a frame is matched against: the pixels from which the cached maps were computed.

If a block is matched against the last frame repeatedly, its pixels may drift far from those of its cached
values: each difference is below the threshold, but their sum is not. `Composite` therefore stores the pixels
of the cached values, and differences are always measured to them. The network's input is also the composite.
So all maps belong exactly to one picture, and each block of this picture is within the threshold of the
frame.

`LastFrame` is the method of the paper (DeepCache, sections 3 and 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.video.matching import Frame, Offset, overlap
from nearsight.common.video.regions import Rectangle


class Reference(ABC):
    """The picture that the next frame is matched against.

    Returned arrays belong to this object. They may be read until the next call.
    """

    def __init__(self) -> None:
        self._pixels: Frame | None = None

    @property
    def pixels(self) -> Frame | None:
        """(H, W, 3); None before the first frame."""
        return self._pixels

    def restart(self, frame: Frame) -> Frame:
        """Start again with a frame that is computed completely; returns the network's input."""
        self._pixels = _copy_into(frame, self._pixels)
        return self._pixels

    @abstractmethod
    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:
        """
        Update the picture for a frame of which `changed` is recomputed, and the rest reused at `offset`.

        Parameters
        ----------
        frame
            (H, W, 3), of the same size as `pixels`.
        offset
            Pixel p of the frame was matched with pixel p + offset of `pixels`.
        changed
            Rectangles in pixels of the frame. They must contain every block that was not matched.

        Returns
        -------
        (H, W, 3): the network's input. Outside `changed` it is the picture to which the reused values belong.

        Raises
        ------
        InvalidArgument
            If there is no previous frame, or it has another size.
        """


class Composite(Reference):
    """The pixels from which each cached value was computed; see the module."""

    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:
        """See `Reference`. Copies the frame inside `changed`, and where the shift leaves no pixels."""
        pixels = _checked(self._pixels, frame)
        if offset != (0, 0):
            here, there = overlap(frame.shape, offset)
            shifted = frame.copy()
            shifted[here] = pixels[there]
            self._pixels = pixels = shifted
        for top, left, bottom, right in changed:
            pixels[top:bottom, left:right] = frame[top:bottom, left:right]
        return pixels


class LastFrame(Reference):
    """The last frame, no matter which parts of it were reused."""

    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:  # noqa: ARG002
        """See `Reference`. The network's input is the frame itself."""
        _checked(self._pixels, frame)
        return self.restart(frame)


def _copy_into(frame: Frame, into: Frame | None) -> Frame:
    """Copy into existing memory if the size matches, since allocating pages takes longer than the copy."""
    if into is None or into.shape != frame.shape:
        return frame.copy()
    np.copyto(into, frame)
    return into


def _checked(pixels: Frame | None, frame: Frame) -> Frame:
    if pixels is None or pixels.shape != frame.shape:
        previous = "none" if pixels is None else f"one of {pixels.shape}"
        raise InvalidArgument(
            f"a frame of {frame.shape} requires a previous frame of this shape, got {previous}"
        )
    return pixels
