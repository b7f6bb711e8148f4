"""Tracks an outline from frame to frame, so that all frames have one although few are recognised.

Points inside the outline are tracked by optical flow [Lucas and Kanade, pyramids after Bouguet 2000]. Points
whose backward flow does not return to their origin are dropped. A homography from the points of the first
frame to those of the current frame moves the outline. Since it is estimated from the first frame, errors do
not accumulate.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Outline = NDArray[np.float32]
"""(4, 2) float32: top left, top right, bottom right, bottom left; x and y in pixels."""

_POINTS, _LEAST_POINTS = 80, 12
_APART_PX, _CORNER_QUALITY = 5, 0.01
_RETURN_PX, _AGREE_PX = 1.0, 2.0
"""Maximum error of the backward flow; maximum distance of a point from its position by the homography."""
_AGREE_SHARE = 0.5
_FARTHEST_PX = 10_000
"""Corners far outside the frame are clipped to this distance, since OpenCV uses 32-bit integers."""
_WINDOW_PX, _LEVELS = (15, 15), 3
_SMALLEST, _LARGEST = 0.2, 5.0
"""Limits of the outline's area, relative to the first frame's. Beyond them tracking has failed."""
_SEEN = 0.1
"""Minimum share of the outline that is inside the frame."""


class OutlineTracker:
    """Tracks one outline in a stream of frames of equal size.

    Parameters
    ----------
    gray : ndarray
        ``(H, W)`` uint8, the frame in which the outline is known.
    outline : ndarray
        ``(4, 2)`` float32, in pixels of this frame.
    """

    def __init__(self, gray: NDArray[np.uint8], outline: Outline) -> None:
        self._gray = gray
        self._first_outline = outline
        inside = np.zeros_like(gray)
        cv2.fillConvexPoly(inside, outline.clip(-_FARTHEST_PX, _FARTHEST_PX).round().astype(np.int32), 255)
        found: object = cv2.goodFeaturesToTrack(gray, _POINTS, _CORNER_QUALITY, _APART_PX, mask=inside)
        self._first = np.reshape(np.asarray([] if found is None else found, np.float32), (-1, 2))
        self._points = self._first

    def follow(self, gray: NDArray[np.uint8]) -> Outline | None:
        """The outline in the next frame. None if it is lost; then it stays lost.

        Frames may be skipped, as long as the motion between two calls is small enough for the optical flow.
        """
        self._keep(self._flow(gray))
        self._gray = gray
        if len(self._points) < _LEAST_POINTS:
            return None
        homography: NDArray[np.float64] | None
        homography, agree = cv2.findHomography(self._first, self._points, cv2.RANSAC, _AGREE_PX)  # type: ignore[assignment]
        if homography is None or np.mean(agree) < _AGREE_SHARE:
            return None
        self._keep(np.ravel(agree) > 0)
        moved = np.asarray(
            cv2.perspectiveTransform(self._first_outline[:, None], homography)[:, 0], np.float32
        )
        plausible = len(self._points) >= _LEAST_POINTS and self._plausible(moved, gray.shape)
        return moved if plausible else None

    def _flow(self, gray: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Move the points to the next frame; returns which of them are valid."""
        if not len(self._points):
            return np.zeros(0, np.bool_)
        there, found = _optical_flow(self._gray, gray, self._points)
        back, returned = _optical_flow(gray, self._gray, there)
        off = np.abs(back - self._points).max(axis=1)
        self._points = there
        return np.asarray(found & returned & (off < _RETURN_PX))

    def _keep(self, good: NDArray[np.bool_]) -> None:
        self._first, self._points = self._first[good], self._points[good]

    def _plausible(self, outline: Outline, shape: tuple[int, ...]) -> bool:
        if not (np.isfinite(outline).all() and cv2.isContourConvex(outline)):
            return False
        area, first = cv2.contourArea(outline), cv2.contourArea(self._first_outline)
        height, width = shape
        frame = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32)
        seen, _ = cv2.intersectConvexConvex(outline, frame)
        return _SMALLEST * first <= area <= _LARGEST * first and seen >= _SEEN * area


def _optical_flow(
    one: NDArray[np.uint8], other: NDArray[np.uint8], points: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Positions of points in the other frame, and whether they were found there."""
    guess = points.copy()
    there, found, _ = cv2.calcOpticalFlowPyrLK(
        one, other, points, guess, winSize=_WINDOW_PX, maxLevel=_LEVELS
    )
    return np.asarray(there, np.float32), np.ravel(found) > 0
