"""What a frame is matched against: the pixels from which the cached maps were computed.

A block that is matched again and again against the last frame may drift far from the pixels that its cached
values came from: each step is below the threshold, their sum is not. `Composite` keeps those pixels, so that
the distance is always measured to them. The network is given the composite, too. Then its maps are those of
one picture, exactly, and each block of that picture is within the threshold of the frame.

`LastFrame` is the paper's choice (DeepCache, sections 3 and 4).
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

    Its arrays are its own: for reading, until the next call.
    """

    def __init__(self) -> None:
        self._pixels: Frame | None = None

    @property
    def pixels(self) -> Frame | None:
        """(H, W, 3); None before the first frame."""
        return self._pixels

    def restart(self, frame: Frame) -> Frame:
        """The network computes everything anew: what it is to be given."""
        self._pixels = _copied(frame, self._pixels)
        return self._pixels

    @abstractmethod
    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:
        """
        The network computes what depends on `changed`; the rest is reused, shifted by `offset`.

        Parameters
        ----------
        frame
            (H, W, 3), as large as `pixels`.
        offset
            Pixel p of the frame was matched with pixel p + offset of `pixels`.
        changed
            In pixels of the frame. They hold each block that was not matched.

        Returns
        -------
        (H, W, 3): what the network is to be given. Outside of `changed` it stands for what is reused.

        Raises
        ------
        InvalidArgument
            If there was no frame before, or one of another size.
        """


class Composite(Reference):
    """The pixels from which each cached value was computed; see the module."""

    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:
        """See `Reference`. Takes over the frame inside of `changed`, and what the shift left empty."""
        pixels = _known(self._pixels, frame)
        if offset != (0, 0):
            here, there = overlap(frame.shape, offset)
            shifted = frame.copy()
            shifted[here] = pixels[there]
            self._pixels = pixels = shifted
        for top, left, bottom, right in changed:
            pixels[top:bottom, left:right] = frame[top:bottom, left:right]
        return pixels


class LastFrame(Reference):
    """The last frame, whatever of it was reused."""

    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:  # noqa: ARG002
        """See `Reference`. The network reads the frame."""
        _known(self._pixels, frame)
        return self.restart(frame)


def _copied(frame: Frame, into: Frame | None) -> Frame:
    """In memory that is there already, if it fits: new pages take longer than the copy."""
    if into is None or into.shape != frame.shape:
        return frame.copy()
    np.copyto(into, frame)
    return into


def _known(pixels: Frame | None, frame: Frame) -> Frame:
    if pixels is None or pixels.shape != frame.shape:
        held = "no frame" if pixels is None else f"one of {pixels.shape}"
        raise InvalidArgument(f"a frame of {frame.shape} cannot follow {held}")
    return pixels
