"""Verification: do the correspondences fit one view of a flat object? Otherwise the answer is unknown.

A homography is estimated per candidate view (MAGSAC++, Barath et al., CVPR 2020, in OpenCV). An inlier ratio
alone accepts noise: 5 random correspondences pass "more than half are inliers" in 63 % of trials, 10 or more
never; so a minimum number of inliers is required as well.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import Candidate
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings


class Verifier:
    """Accepts a candidate only if a plausible homography explains enough correspondences.

    Deterministic: OpenCV seeds its sampler with a constant.
    """

    def __init__(self, settings: RecognitionSettings) -> None:
        self._settings = settings

    def verify(self, query: Features, model: ObjectModel, candidate: Candidate) -> RecognizedObject | None:
        """The object with its corners in the frame of the source image, or None."""
        settings = self._settings
        if candidate.votes < settings.min_inliers:
            return None
        view = model.views[candidate.view]
        source = view.keypoints[candidate.view_indices]
        target = query.keypoints[candidate.query_indices]
        homography, mask = _homography(source, target, settings.reprojection_px)
        if homography is None:
            return None
        inliers = int(mask.sum())
        ratio = inliers / candidate.votes
        if inliers < settings.min_inliers or ratio < settings.min_inlier_ratio:
            return None
        corners = _project(homography, view.image_size)
        if corners is None or not _plausible(corners, query.image_size):
            return None
        scale = np.array(query.source_size) / np.array(query.image_size)
        return RecognizedObject(
            model.object_id,
            model.label,
            model.version,
            confidence=float(1 - np.exp(-inliers / 20)) * float(np.sqrt(ratio)),
            inliers=inliers,
            corners=_as_corners(corners * scale),
            metadata=model.metadata,
        )


def _homography(
    source: NDArray[np.float32], target: NDArray[np.float32], reprojection_px: float
) -> tuple[NDArray[np.float64] | None, NDArray[np.uint8]]:
    """MAGSAC's homography (3, 3) and inlier mask (N, 1); OpenCV returns None where it finds none."""
    found: tuple[Any, Any] = cv2.findHomography(
        source, target, cv2.USAC_MAGSAC, reprojection_px, maxIters=2000, confidence=0.999
    )
    return found


def _project(homography: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64] | None:
    width, height = size
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64)
    projected = corners @ homography.T
    if not np.isfinite(projected).all() or (projected[:, 2] <= 1e-9).any():
        return None
    return np.asarray(projected[:, :2] / projected[:, 2:])


def _plausible(corners: NDArray[np.float64], image_size: tuple[int, int]) -> bool:
    """Convex, not mirrored, not degenerate, not absurdly small or large."""
    edges = np.roll(corners, -1, axis=0) - corners
    following = np.roll(edges, -1, axis=0)
    turns = edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0]
    if (turns <= 0).any():  # y grows downwards: our order turns right at each corner
        return False
    area = float(cv2.contourArea(corners.astype(np.float32)))
    return 0.005 <= area / (image_size[0] * image_size[1]) <= 100


def _as_corners(points: NDArray[np.float64]) -> Corners:
    first, second, third, fourth = ((float(x), float(y)) for x, y in points)
    return first, second, third, fourth
