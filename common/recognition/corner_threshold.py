"""Finding the same strongest corners sooner: a FAST threshold as high as an image allows.

With the threshold that low-contrast pictures need, FAST finds thousands of corners, of which ORB keeps the
few hundred strongest: most of the time goes into scoring those that are dropped. A corner's score is the
highest threshold at which it still is one, and suppression compares neighbours by it, so a higher threshold
finds exactly the corners that score as much, with the same scores. As long as that fills the quota of every
level of the pyramid, ORB keeps the same ones.

The threshold is guessed from the smallest level, which mostly runs out of corners first, and whether it was
too high is seen in what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

LEVELS, SCALE = 8, 1.2
"""Of the pyramid; OpenCV's defaults for ORB."""
_BORDER_PX = 27
"""ORB keeps 31 px free around each level; FAST looks at 4 px around a corner and its neighbours."""
_PART = 0.5
"""Of the guessed threshold. Too high costs a second search: with 0.5 one photo in twenty, with 0.7 one in
three."""
_HIGHEST = 20
"""Above, so few corners are left that it saves nothing."""


def level_quotas(count: int) -> tuple[int, ...]:
    """Corners that ORB keeps of each level, the largest level first; all together ``count``.

    In single precision, as OpenCV counts.
    """
    factor = np.float32(1 / SCALE)
    wanted = np.float32(count) * (1 - factor) / (1 - np.float32(float(factor) ** LEVELS))
    quotas: list[int] = []
    for _ in range(LEVELS - 1):
        quotas.append(int(np.rint(wanted)))
        wanted *= factor
    return (*quotas, max(0, count - sum(quotas)))


def likely_threshold(pixels: NDArray[np.uint8], quota: int, lowest: int) -> int:
    """A threshold at which an image (H, W) most likely still has enough corners on every level.

    Parameters
    ----------
    pixels : ndarray, (H, W) uint8
    quota : int
        Of the smallest level.
    lowest : int
        The threshold that finds all corners; also the answer if a higher one finds too few.
    """
    height, width = pixels.shape
    shrink = SCALE ** (LEVELS - 1)
    even = pixels[: height // 2 * 2, : width // 2 * 2]  # halving is quick, other sizes are not
    half = cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    smallest = cv2.resize(half, (round(width / shrink), round(height / shrink)))
    inner = smallest[_BORDER_PX:-_BORDER_PX, _BORDER_PX:-_BORDER_PX]
    corners = cv2.FastFeatureDetector.create(lowest).detect(inner) if inner.size else ()
    if not 0 < quota <= len(corners):
        return lowest
    scores = sorted((corner.response for corner in corners), reverse=True)
    return max(lowest, min(_HIGHEST, int(_PART * scores[quota - 1])))


def fills(octaves: Sequence[int], quotas: Sequence[int]) -> bool:
    """Whether corners, given by their levels, fill the quota of every level."""
    return bool((np.bincount(octaves, minlength=LEVELS) >= quotas).all())
