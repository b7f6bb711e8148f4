"""Visualises what a `VideoSession` reused: as a picture over all frames, and frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, SetupError
from nearsight.common.files import replacing
from nearsight.common.inference.classification import in_colour
from nearsight.common.video.regions import Rectangle
from nearsight.device.drawing import write
from nearsight.device.video.result import VideoResult

_LONGEST_PX, _LEAST_PX = 960, 480
"""Limits of the pictures' longer side."""
_RECOMPUTED = np.array((0, 120, 255), np.float32)
"""Colour of recomputed blocks: orange (blue, green, red)."""
_FRAMED = (255, 255, 255)
"""A white line marks the network's window, if that is not the whole frame."""
_OPACITY = 0.55
_CODECS = {".mp4": "mp4v", ".avi": "MJPG"}


class HeatMap:
    """Counts how often each block of a video was reused.

    Parameters
    ----------
    block_px : int
        Side of a block, in pixels of the network's input.
    size : tuple of int
        Rows and columns of the network's input.
    """

    def __init__(self, block_px: int, size: tuple[int, int]) -> None:
        self._block_px, self._size = block_px, size
        self.frames = 0
        self._sum: NDArray[np.float64] | None = None
        # Per pixel: number of frames in which it was reused, and in which it was inside the network's window.
        self._reused = self._inside = np.zeros((0, 0))

    def add(self, frame: NDArray[np.uint8], result: VideoResult) -> None:
        """Add a frame and its result."""
        photo = self._shown(frame)
        if self._sum is None:
            self._sum = np.zeros(photo.shape)
            self._reused, self._inside = np.zeros(photo.shape[:2]), np.zeros(photo.shape[:2])
        height, width = self._sum.shape[:2]
        self._sum += photo if photo.shape == self._sum.shape else cv2.resize(photo, (width, height))
        self._reused += self._in_pixels(result.blocks.astype(np.float64), self._sum.shape, result)
        top, left, bottom, right = _window(result, self._sum.shape)
        self._inside[top:bottom, left:right] += 1
        self.frames += 1

    def picture(self) -> NDArray[np.uint8]:
        """Share of frames in which each block was reused, as colours over the mean frame, with a legend."""
        if self._sum is None:
            raise InvalidArgument("no frame was added")
        mean = np.asarray(self._sum / self.frames, np.uint8)
        share = self._reused / np.maximum(self._inside, 1)
        colours = cv2.applyColorMap(np.asarray(255 * share, np.uint8), cv2.COLORMAP_VIRIDIS)
        grey = cv2.cvtColor(cv2.cvtColor(mean, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
        drawn = np.where(self._inside[:, :, None] > 0, _blended(colours, grey), grey)
        return np.concatenate([drawn, self._legend(mean.shape[1])])

    def frame(self, frame: NDArray[np.uint8], result: VideoResult, text: str) -> NDArray[np.uint8]:
        """The frame with its recomputed blocks marked, and a line of text."""
        photo = self._shown(frame)
        if self._sum is not None and photo.shape != self._sum.shape:
            photo = np.asarray(cv2.resize(photo, self._sum.shape[1::-1]), np.uint8)
        opacity = (
            self._in_pixels((~result.blocks).astype(np.float64), photo.shape[:2], result)[:, :, None]
            * _OPACITY
        )
        drawn = np.asarray(photo * (1 - opacity) + _RECOMPUTED * opacity, np.uint8)
        top, left, bottom, right = _window(result, drawn.shape)
        if (bottom - top, right - left) != drawn.shape[:2]:
            cv2.rectangle(drawn, (left, top), (right - 1, bottom - 1), _FRAMED)
        text_px = _text_px(drawn.shape[1])
        write(drawn, text, (0, drawn.shape[0]), text_px)
        return drawn

    def _shown(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The frame in colour, scaled to a size at which the text is readable."""
        photo = in_colour(frame)
        longest = max(photo.shape[:2])
        scale = min(max(longest, _LEAST_PX), _LONGEST_PX) / longest
        size = [2 * max(1, round(side * scale / 2)) for side in photo.shape[1::-1]]
        return np.asarray(cv2.resize(photo, size, interpolation=cv2.INTER_AREA if scale < 1 else 1), np.uint8)

    def _in_pixels(
        self, blocks: NDArray[np.float64], shape: tuple[int, ...], result: VideoResult
    ) -> NDArray[np.float64]:
        """Expand values of blocks to the pixels of a picture; 0 outside the network's window."""
        height, width = self._size
        cells = blocks.repeat(self._block_px, 0).repeat(self._block_px, 1)[:height, :width]
        top, left, bottom, right = _window(result, shape)
        found = np.zeros(shape[:2])
        size = right - left, bottom - top
        found[top:bottom, left:right] = cv2.resize(cells, size, interpolation=cv2.INTER_NEAREST)
        return found

    def _legend(self, width: int) -> NDArray[np.uint8]:
        """Colour bar from never to always."""
        text_px = _text_px(width)
        legend = np.full((5 * text_px, width, 3), 30, np.uint8)
        bar = cv2.applyColorMap(np.linspace(0, 255, width - 2 * text_px).astype(np.uint8)[None], 16)
        grey = np.full_like(bar, 128)
        legend[int(0.7 * text_px) : int(1.7 * text_px), text_px : width - text_px] = _blended(bar, grey)
        middle, right = width // 2 - text_px, width - 4 * text_px
        for place, text in ((text_px // 2, "0 %"), (middle, "50 %"), (right, "100 %")):
            write(legend, text, (place, int(1.7 * text_px)), text_px)
        write(
            legend,
            f"share of {self.frames} frames in which a block was reused",
            (text_px // 2, 3 * text_px),
            text_px,
        )
        return legend


class HeatVideo:
    """Writes frames to a video file (.mp4 or .avi), which appears when it is complete. Must be closed."""

    def __init__(self, path: Path, frames_per_s: float) -> None:
        if path.suffix.lower() not in _CODECS:
            raise InvalidArgument(
                f"{path} has no supported video format", advice="use a name that ends in .mp4 or .avi"
            )
        self._path, self._frames_per_s = path, frames_per_s
        self._file = ExitStack()
        self._writer: cv2.VideoWriter | None = None
        self._aside = path
        self._frames = 0

    def add(self, drawn: NDArray[np.uint8]) -> None:
        """Write the next frame. All frames must have the same size.

        Raises
        ------
        SetupError
            If the file cannot be written.
        """
        if self._writer is None:
            self._writer = self._opened(drawn.shape[1::-1])
        self._writer.write(drawn)
        self._frames += 1

    def _opened(self, size: Sequence[int]) -> cv2.VideoWriter:
        with ExitStack() as file:
            try:
                self._aside = file.enter_context(replacing(self._path))
            except OSError as error:
                raise SetupError(
                    f"{self._path} cannot be written: {error.strerror}", advice="choose another folder"
                ) from error
            codec = cv2.VideoWriter.fourcc(*_CODECS[self._path.suffix.lower()])
            writer = cv2.VideoWriter(str(self._aside), codec, self._frames_per_s, size)
            if not writer.isOpened():
                raise SetupError(f"{self._path} cannot be written", advice="choose another folder, or .avi")
            self._file = file.pop_all()
        return writer

    def close(self) -> None:
        """Finish the file.

        Raises
        ------
        SetupError, OSError
            If the file is incomplete. It is deleted, and an older file of this name is unchanged.
        """
        with self._file:
            if self._writer is not None:
                self._writer.release()
                self._check()

    def _check(self) -> None:
        """Count the frames: OpenCV reports no failed writes, and writes the number at the very end."""
        reader = cv2.VideoCapture(str(self._aside))
        # The number that a file declares is an estimate.
        is_whole = reader.isOpened() and reader.get(cv2.CAP_PROP_FRAME_COUNT) >= 0.9 * self._frames
        reader.release()
        if not is_whole:
            raise SetupError(
                f"{self._path} could not be written completely; the disk may be full",
                advice="free some space, or write to another location, and run the command again",
            )


def _window(result: VideoResult, shape: tuple[int, ...]) -> Rectangle:
    """The network's window, in pixels of a picture."""
    return Rectangle(*(round(share * side) for share, side in zip(result.window, 2 * shape[:2], strict=True)))


def _text_px(width: int) -> int:
    return max(12, width // 36)


def _blended(colours: cv2.typing.MatLike, grey: cv2.typing.MatLike) -> NDArray[np.uint8]:
    return np.asarray(cv2.addWeighted(colours, _OPACITY, grey, 1 - _OPACITY, 0), np.uint8)
