"""Verification: do the correspondences fit one view of a flat object? Otherwise the answer is unknown.

A homography is estimated per candidate view with MAGSAC++ (Barath et al., CVPR 2020; OpenCV's USAC). An
inlier ratio alone accepts noise: 5 random correspondences pass "more than half are inliers" in 63 % of
trials. So five things are asked: a minimum of inliers at distinct places, a minimum ratio, an agreement that
chance does not explain (`significance`), a quadrilateral that a camera can see (`quadrilateral`), and inliers
spread over the picture: two pictures may share a logo or a wheel without being the same.

The minimum grows with the features of the query, because what different pictures share does too: at 2000
features, a banner or a tiled floor that two pictures have in common gave up to 24 inliers (58,000 wrong pairs
of views).

The votes of a candidate are tried first: they are there and mostly suffice. If they do not, the query is
matched again against this one view. The ratio test is then between features of one view, without the
thousands of other objects that drown a weak one, and finds about twice as many correspondences. This second
look is what finds dark paintings; its cost does not depend on the number of objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import Candidate
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.quadrilateral import in_source_frame, is_plausible, project_corners
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.significance import log10_false_alarms

_SEED = 1
_ITERATIONS = 2000
_PLACE_PX = 4
"""ORB finds one corner on several levels of its pyramid; inliers within such a cell count once."""
_MIN_SPREAD_PX = 8.0
"""Standard deviation of the inliers across their narrow direction: points on a line fix no homography."""
_MIN_COVERAGE = 0.04
"""Of the visible part of the view, the part that the inliers span. Measured: 0.05 to 1 for true answers."""
_MAX_DISTANCE_BITS = 80
CLEAR_INLIERS = 25
"""Votes with so many inliers need no second look."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A homography that passed every test."""

    corners: NDArray[np.float64]
    inliers: int


class Verifier:
    """Accepts a candidate only if a plausible homography explains enough correspondences.

    Deterministic: the sampler is seeded with a constant. Thread-safe: it keeps no state.
    """

    def __init__(self, settings: RecognitionSettings) -> None:
        self._settings = settings

    def verify(self, query: Features, model: ObjectModel, candidate: Candidate) -> RecognizedObject | None:
        """The object with its corners in the frame of the source image, or None."""
        fit = self._best_fit(query, model.views[candidate.view], candidate)
        if fit is None:
            return None
        return RecognizedObject(
            object_id=model.object_id,
            label=model.label,
            version=model.version,
            confidence=confidence(fit.inliers, 0),
            inliers=fit.inliers,
            corners=in_source_frame(fit.corners, query.image_size, query.source_size),
            metadata=model.metadata,
        )

    def _best_fit(self, query: Features, view: Features, candidate: Candidate) -> Fit | None:
        """The fit of the votes if that is clear, else the better one of it and the second look's."""
        votes = len(candidate.query_indices)
        again = None
        if votes < CLEAR_INLIERS:  # too few to be clear, whatever their fit: it may not even be needed
            again = self._fit(query, view, *self._match_again(query, view))
            if again is not None and again.inliers > votes:
                return again
        fit = self._fit(query, view, candidate.query_indices, candidate.view_indices)
        if fit is not None and fit.inliers >= CLEAR_INLIERS:
            return fit
        if votes >= CLEAR_INLIERS:
            again = self._fit(query, view, *self._match_again(query, view))
        return again if fit is None or (again is not None and again.inliers > fit.inliers) else fit

    def _match_again(self, query: Features, view: Features) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Correspondences of the whole query with this view alone, best first, each view feature once."""
        faiss.omp_set_num_threads(1)
        distances, nearest = faiss.knn_hamming(query.descriptors, view.descriptors, 2)
        rival = np.where(nearest[:, 1] >= 0, distances[:, 1], _MAX_DISTANCE_BITS).astype(np.float64)
        passed = (distances[:, 0] <= _MAX_DISTANCE_BITS) & (
            distances[:, 0] < self._settings.view_ratio * rival
        )
        chosen = np.flatnonzero(passed)
        chosen = chosen[np.argsort(distances[chosen, 0] / rival[chosen], kind="stable")]
        _, first = np.unique(nearest[chosen, 0], return_index=True)
        chosen = chosen[np.sort(first)]
        return chosen.astype(np.int32), nearest[chosen, 0].astype(np.int32)

    def _fit(
        self,
        query: Features,
        view: Features,
        query_indices: NDArray[np.int32],
        view_indices: NDArray[np.int32],
    ) -> Fit | None:
        settings = self._settings
        count = len(query_indices)
        if count < settings.min_inliers:
            return None
        target, source = query.keypoints[query_indices], view.keypoints[view_indices]
        homography, mask = _homography(source, target, settings.reprojection_px)
        if homography is None or mask is None:
            return None
        agreeing = mask.ravel() > 0
        inliers = min(_places(target[agreeing]), _places(source[agreeing]))
        if inliers < max(
            settings.min_inliers,
            settings.min_inlier_share * len(query),
            settings.min_inlier_ratio * count,
        ):
            return None
        area = query.image_size[0] * query.image_size[1]
        if (
            log10_false_alarms(count, inliers, settings.reprojection_px, area)
            > settings.max_log10_false_alarms
        ):
            return None
        if min(_spread(target[agreeing]), _spread(source[agreeing])) < _MIN_SPREAD_PX:
            return None
        corners = project_corners(homography, view.image_size)
        if corners is None or not is_plausible(corners, query.image_size):
            return None
        if not _covers(source[agreeing], view, homography, query.image_size):
            return None
        return Fit(corners, inliers)


def confidence(inliers: int, runner_up_inliers: int) -> float:
    """Confidence in (0, 1]: grows with the inliers and with the margin over the next verified object.

    10 inliers alone give 0.39, 50 give 0.92; a runner-up with as many inliers halves it.
    """
    margin = 1 - 0.5 * min(1.0, runner_up_inliers / max(inliers, 1))
    return max(1e-6, -float(np.expm1(-inliers / 20)) * margin)


def _homography(
    source: NDArray[np.float32], target: NDArray[np.float32], reprojection_px: float
) -> tuple[NDArray[np.float64] | None, NDArray[np.uint8] | None]:
    """Homography (3, 3) from source to target and inlier mask (N, 1); points are sorted best first."""
    params = cv2.UsacParams()
    params.sampler = cv2.SAMPLING_PROSAC
    params.score = cv2.SCORE_METHOD_MAGSAC
    params.loMethod = cv2.LOCAL_OPTIM_SIGMA
    params.threshold = reprojection_px
    params.confidence = 0.999
    params.maxIterations = _ITERATIONS
    params.randomGeneratorState = _SEED
    params.isParallel = False
    found: tuple[Any, Any] = cv2.findHomography(source, target, params)
    return found


def _places(points: NDArray[np.float32]) -> int:
    """Number of distinct cells that hold a point."""
    cells = np.floor(points / _PLACE_PX).astype(np.int64)
    return len(np.unique(cells[:, 0] * 65536 + cells[:, 1]))


def _covers(
    points: NDArray[np.float32], view: Features, homography: NDArray[np.float64], image_size: tuple[int, int]
) -> bool:
    """Whether the points span enough of what the query image shows of the view."""
    area = _area(points)
    width, height = np.ptp(view.keypoints, axis=0)
    if area >= _MIN_COVERAGE * float(width) * float(height):  # even if all of it can be seen
        return True
    return area >= _MIN_COVERAGE * _area(_visible(view, homography, image_size))


def _visible(
    view: Features, homography: NDArray[np.float64], image_size: tuple[int, int]
) -> NDArray[np.float32]:
    """Keypoints (M, 2) of the view that lie within the query image under the homography."""
    projected = cv2.perspectiveTransform(view.keypoints[:, np.newaxis], homography)[:, 0]
    inside = (projected >= 0).all(axis=1) & (projected < np.array(image_size)).all(axis=1)
    return view.keypoints[inside]


def _area(points: NDArray[np.float32]) -> float:
    """Area of the convex hull of points (N, 2)."""
    return float(cv2.contourArea(cv2.convexHull(points))) if len(points) >= 3 else 0.0


def _spread(points: NDArray[np.float32]) -> float:
    """Standard deviation in pixels across the narrow direction of the points."""
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    (xx, xy), (_, yy) = (centred.T @ centred / (len(points) - 1)).tolist()
    smaller = (xx + yy) / 2 - math.hypot((xx - yy) / 2, xy)  # eigenvalue of the covariance
    return math.sqrt(max(smaller, 0.0))
