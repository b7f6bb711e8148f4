"""The part of a frame that is the network's input: a window that follows the picture's motion.

Cached maps can be shifted only by multiples of a network's stride. If the frame has a margin around the
network's input, the window moves by the remainder, so that its content stays in the same cells. In the paper
the input is the whole frame; see decision 056.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nearsight.common.video.matching import Blocks, Frame, Match, Offset, ShiftMatcher
from nearsight.common.video.regions import Rectangle

_SEARCH_MS = 1.0
"""Time of a motion search at every pixel, for inputs of 227 px."""
_WEIGHT, _RECOVERY = 0.25, 1.1
"""Weight of the newest search in the mean gain; factor of the expected gain per frame without a search."""


class Window(NamedTuple):
    """The network's input as a part of a scaled frame, which is larger by ``room`` [pixels of the input].

    Attributes
    ----------
    height, width : int
        Size of the input.
    room : tuple of int
        Rows and columns by which the scaled frame is larger.
    top, left : int
        First row and column of the window, at most ``room``.
    """

    height: int
    width: int
    room: tuple[int, int]
    top: int
    left: int

    @classmethod
    def centred(cls, size: tuple[int, int], margin: float) -> Window:
        """Centre a window in a frame that is larger by `margin`, a share of the input's sides."""
        room = round(margin * size[0]), round(margin * size[1])
        return cls(*size, room, room[0] // 2, room[1] // 2)

    @property
    def frame_size(self) -> tuple[int, int]:
        """Rows and columns of the scaled frame."""
        return self.height + self.room[0], self.width + self.room[1]

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Top, left, bottom and right, as shares of the frame's sides."""
        rows, columns = self.frame_size
        bottom, right = self.top + self.height, self.left + self.width
        return self.top / rows, self.left / columns, bottom / rows, right / columns

    def cut(self, frame: Frame) -> Frame:
        """(height, width, 3): the window's part of a frame of `frame_size`; a view."""
        return frame[self.top : self.top + self.height, self.left : self.left + self.width]

    def in_window(self, part: Rectangle, shape: tuple[int, ...]) -> Rectangle:
        """Convert a rectangle of the unscaled frame, (H, W), to pixels of the window; rounded outwards."""
        down, right = self.frame_size[0] / shape[0], self.frame_size[1] / shape[1]
        return Rectangle(
            int(part.top * down) - self.top,
            int(part.left * right) - self.left,
            math.ceil(part.bottom * down) - self.top,
            math.ceil(part.right * right) - self.left,
        )

    def moved_by(self, motion: Offset, stride: int) -> tuple[Window, Offset] | None:
        """The window at which the picture stays in the same cells, after a motion.

        Parameters
        ----------
        motion
            Pixel p of the current window content was at p + motion in the previous content.
        stride
            Stride of the network. At the frame's edge the window moves back by multiples of it.

        Returns
        -------
        The window, and the remaining offset: multiples of the stride, mostly (0, 0). None if the room is too
        small.
        """
        sides = zip((self.top, self.left), self.room, motion, strict=True)
        (top, down), (left, right) = (_start_along(at - moved, room, stride) for at, room, moved in sides)
        if 0 <= top <= self.room[0] and 0 <= left <= self.room[1]:
            return self._replace(top=top, left=left), (down, right)
        return None


class MovingWindow:
    """
    Moves the window along with the picture of one video, if this is expected to save time.

    Parameters
    ----------
    blocks
        Grid over the network's input.
    stride
        Stride of the network.
    margin
        See `Window.centred`. 0: the window does not move.
    whole_ms
        Time of a whole execution. Motion is searched if this is expected to save more time than it takes.

    Attributes
    ----------
    centred : Window
        Start position.
    at : Window
        Current position; a frame that is computed completely may be centred again.
    """

    def __init__(self, blocks: Blocks, stride: int, margin: float, whole_ms: float) -> None:
        self._blocks, self._stride, self._whole_ms = blocks, stride, whole_ms
        self._motions = ShiftMatcher(blocks.block_px)
        self._gain = 1.0
        """Expected share of the unmatched blocks that a search would match."""
        self.centred = self.at = Window.centred((blocks.height, blocks.width), margin)

    def follow(self, frame: Frame, reference: Frame, still: Match, threshold_db: float) -> Match:
        """
        Move the window if it then matches more blocks of the reference.

        Parameters
        ----------
        frame
            Frame of size `Window.frame_size`.
        reference
            (H, W, 3), of the window's size.
        still
            Match of the frame at the window's current position.
        threshold_db
            See `ShiftMatcher`.

        Returns
        -------
        Match of the frame at the window's new position.
        """
        if not any(self.at.room):
            return still
        missing = np.count_nonzero(~still.matched)
        if missing / still.matched.size * self._gain * self._whole_ms < _SEARCH_MS:
            self._gain = min(1.0, self._gain * _RECOVERY)
            return still
        self._motions.threshold_db = threshold_db
        motion = self._motions.match(self.at.cut(frame), reference).offset
        found, there = still, self.at.moved_by(motion, self._stride)
        if there is not None and there != (self.at, still.offset):
            window, offset = there
            matched = self._blocks.matched(window.cut(frame), reference, threshold_db, offset)
            if np.count_nonzero(~matched) < missing:
                found, self.at = Match(offset, matched), window
        gained = 1 - np.count_nonzero(~found.matched) / missing
        self._gain += _WEIGHT * (gained - self._gain)
        return found


def _start_along(start: int, room: int, stride: int) -> tuple[int, int]:
    """Start, moved into [0, room] by the fewest strides, and that distance; outside if none fits."""
    jump = 0
    if start < 0:
        jump = stride * math.ceil(-start / stride)
    elif start > room:
        jump = -stride * math.ceil((start - room) / stride)
    return start + jump, jump
