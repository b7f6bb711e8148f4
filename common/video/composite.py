"""Reference that a frame is matched against: the pixels from which the cached maps were computed.

If a block is matched against the last frame repeatedly, as in the paper (DeepCache, sections 3 and 4), its
pixels may drift far from those of its cached values: each difference is below the threshold, but their sum is
not. `Composite` therefore stores the pixels of the cached values, and differences are always measured to
them. The network's input is also the composite. So all maps belong exactly to one picture, and each block of
this picture is within the threshold of the frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.video.matching import Frame, Offset, overlap
from nearsight.common.video.regions import Rectangle


class Composite:
    """The picture that the next frame is matched against; see the module.

    Returned arrays belong to this object. They may be read until the next call.

    Attributes
    ----------
    pixels : ndarray, (H, W, 3), or None
        None before the first frame.
    """

    def __init__(self) -> None:
        self.pixels: Frame | None = None

    def restart(self, frame: Frame) -> Frame:
        """Start again with a frame that is computed completely; returns the network's input."""
        if self.pixels is None or self.pixels.shape != frame.shape:
            self.pixels = frame.copy()
        else:  # allocating pages takes longer than the copy
            np.copyto(self.pixels, frame)
        return self.pixels

    def update(self, frame: Frame, offset: Offset, changed: Sequence[Rectangle]) -> Frame:
        """
        Update the picture for a frame of which `changed` is recomputed, and the rest reused at `offset`.

        Copies the frame inside `changed`, and where the shift leaves no pixels.

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
        pixels = self.pixels
        if pixels is None or pixels.shape != frame.shape:
            previous = "none" if pixels is None else f"one of {pixels.shape}"
            raise InvalidArgument(
                f"a frame of {frame.shape} requires a previous frame of this shape, got {previous}"
            )
        if offset != (0, 0):
            here, there = overlap(frame.shape, offset)
            shifted = frame.copy()
            shifted[here] = pixels[there]
            self.pixels = pixels = shifted
        for top, left, bottom, right in changed:
            pixels[top:bottom, left:right] = frame[top:bottom, left:right]
        return pixels
