"""Verification: tests whether correspondences fit a view of a flat object; otherwise the answer is unknown.

A homography is estimated per candidate view with MAGSAC++ (Barath et al., CVPR 2020; OpenCV's USAC). A
threshold on the inlier ratio alone accepts noise: 5 random correspondences pass "more than half are inliers"
in 63 % of trials. So five conditions must hold:

1. a minimum number of inliers at distinct places,
2. a minimum ratio of inliers,
3. an agreement that is unlikely by chance (`log10_false_alarms`),
4. a quadrilateral that a camera can see (`is_plausible`),
5. inliers spread over the picture: different pictures may share a logo or a wheel.

The minimum number of inliers grows with the features of the query, because more features also give more
inliers between different pictures that share a detail. With 2000 features, a common banner or tiled floor
gave up to 24 inliers (58,000 wrong pairs of views).

The votes of a candidate serve as correspondences first: they are available and usually suffice. Otherwise the
query is matched again against this one view. The ratio test then compares only features of one view, without
the thousands of other objects that suppress weak matches, and finds about twice as many correspondences. This
second matching recognises dark paintings. Its cost does not depend on the number of objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.classifier import MAX_DISTANCE_BITS, Candidate
from nearsight.common.recognition.extraction import LEVELS, SCALE
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings

_SEED = 1
_ITERATIONS = 2000
_PLACE_PX = 4
"""Cell size of distinct places [px]. ORB finds a corner on several levels; inliers in one cell count once."""
_MIN_SPREAD_PX = 8.0
"""Minimum standard deviation of the inliers in the narrow direction: a line determines no homography."""
_MIN_COVERAGE = 0.04
"""Minimum share of the view's visible area that the inliers span. Correct answers have 0.05 to 1."""
CLEAR_INLIERS = 25
"""Number of inliers at which a result is clear: the votes then need no second matching."""

_SAMPLE = 4
"""Number of correspondences that define a homography."""
_MIN_AREA = 0.003
"""Minimum area as a share of the query image. In a smaller area, ten inliers within 5 px occur by chance."""
_MAX_AREA = 50.0
"""Maximum area as a share of the query image: a close-up shows at least a fiftieth of the object."""
_MAX_FORESHORTENING = 6.0
"""Maximum ratio of opposite sides; photos taken at up to 80 degrees stay below."""
_MIN_SINE = 0.17
"""Minimum sine of a corner's angle: 10 degrees."""

_MIN_COMMON = 0.2
"""Minimum area that two pictures have in common, as a share of the larger one; less counts as a detail."""
_MIN_KEPT = 0.15
"""Lower limit of `kept_share`: a smaller share would leave too few features to decide."""

_Matches = tuple[NDArray[np.int32], NDArray[np.int32]]
"""(N,) each: corresponding features in the query and in the view, best first."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A homography that satisfied every condition: projected corners (4, 2) and the number of inliers."""

    corners: NDArray[np.float64]
    inliers: int


def verify(
    query: Features, model: ObjectModel, candidate: Candidate, settings: RecognitionSettings
) -> RecognizedObject | None:
    """Accept a candidate only if a plausible homography explains enough correspondences.

    Deterministic: the sampler has a constant seed.

    Returns
    -------
    RecognizedObject or None
        The object with its corners in the frame of the source image; None if the verification fails.
    """
    fit = _best_fit(query, model.views[candidate.view], candidate, settings)
    if fit is None:
        return None
    scale = np.array(query.source_size, np.float64) / np.array(query.image_size, np.float64)
    first, second, third, fourth = zip(*(fit.corners * scale).T.tolist(), strict=True)
    return RecognizedObject(
        object_id=model.object_id,
        label=model.label,
        version=model.version,
        confidence=confidence(fit.inliers, 0),
        inliers=fit.inliers,
        corners=(first, second, third, fourth),
        metadata=model.metadata,
    )


def _best_fit(
    query: Features, view: Features, candidate: Candidate, settings: RecognitionSettings
) -> Fit | None:
    """The fit of the votes if it is clear, else the better of it and the fit of the second matching."""
    votes = len(candidate.query_indices)
    again = None
    # The votes cannot give a clear fit, and the second matching may make their fit unnecessary.
    if votes < CLEAR_INLIERS:
        again = _fit(query, view, _match_again(query, view, settings.view_ratio), settings)
        if again is not None and again.inliers > votes:
            return again
    fit = _fit(query, view, (candidate.query_indices, candidate.view_indices), settings)
    if fit is not None and fit.inliers >= CLEAR_INLIERS:
        return fit
    if votes >= CLEAR_INLIERS:
        again = _fit(query, view, _match_again(query, view, settings.view_ratio), settings)
    return again if fit is None or (again is not None and again.inliers > fit.inliers) else fit


def _match_again(query: Features, view: Features, ratio: float) -> _Matches:
    """Correspondences of the whole query with this view alone, best first; each view feature once."""
    faiss.omp_set_num_threads(1)
    distances, nearest = faiss.knn_hamming(query.descriptors, view.descriptors, 2)
    rival = np.where(nearest[:, 1] >= 0, distances[:, 1], MAX_DISTANCE_BITS).astype(np.float64)
    passed = (distances[:, 0] <= MAX_DISTANCE_BITS) & (distances[:, 0] < ratio * rival)
    chosen = np.flatnonzero(passed)
    chosen = chosen[np.argsort(distances[chosen, 0] / rival[chosen], kind="stable")]
    _, first = np.unique(nearest[chosen, 0], return_index=True)
    chosen = chosen[np.sort(first)]
    return chosen.astype(np.int32), nearest[chosen, 0].astype(np.int32)


def _fit(query: Features, view: Features, matches: _Matches, settings: RecognitionSettings) -> Fit | None:
    """The homography of the matches; None if one of the conditions is not satisfied."""
    query_indices, view_indices = matches
    count = len(query_indices)
    if count < settings.min_inliers:
        return None
    target, source = query.keypoints[query_indices], view.keypoints[view_indices]
    homography, mask = _homography(source, target, settings.reprojection_px)
    if homography is None or mask is None:
        return None
    agreeing = mask.ravel() > 0
    inliers = min(distinct_places(target[agreeing]), distinct_places(source[agreeing]))
    if inliers < max(
        settings.min_inliers,
        settings.min_inlier_share * len(query),
        settings.min_inlier_ratio * count,
    ):
        return None
    by_chance = log10_false_alarms(count, inliers, settings.reprojection_px, math.prod(query.image_size))
    if by_chance > settings.max_log10_false_alarms:
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

    10 inliers give 0.39 and 50 give 0.92; a runner-up with the same number of inliers halves the value.
    """
    margin = 1 - 0.5 * min(1.0, runner_up_inliers / max(inliers, 1))
    return max(1e-6, -float(np.expm1(-inliers / 20)) * margin)


def agreeing_share(found: RecognizedObject, query: Features, view: Features) -> float:
    """Share of the common features of two pictures that agree; 0 if they have only a detail in common.

    A cropped copy shows fewer features; a reduced copy lacks the fine ones. So features outside of the common
    area, or too fine for the smaller picture, do not count.

    Parameters
    ----------
    found : RecognizedObject
        Result of verifying the query against the view.
    query, view : Features
        Features of the query and of the view of the object.
    """
    frame = _outline(view.image_size)
    scaling = np.array(query.image_size, np.float64) / np.array(query.source_size, np.float64)
    corners = (np.array(found.corners) * scaling).astype(np.float32)
    common = np.zeros(query.image_size[::-1], np.uint8)
    cv2.fillConvexPoly(common, corners.astype(np.int32), 1)
    if int(common.sum()) < _MIN_COMMON * max(common.size, _area(corners)):
        return 0.0
    query_from_view = np.asarray(cv2.getPerspectiveTransform(frame, corners), np.float64)
    view_from_query = np.asarray(cv2.getPerspectiveTransform(corners, frame), np.float64)
    of_view = len(_visible(view, query_from_view, query.image_size))
    of_query = len(_visible(query, view_from_query, view.image_size))
    scale = math.sqrt(_area(corners) / _area(frame))
    return found.inliers / min(of_view * kept_share(1 / scale), of_query * kept_share(scale))


def _outline(size: tuple[int, int]) -> NDArray[np.float32]:
    width, height = size
    return np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)


def kept_share(factor: float) -> float:
    """Share of a picture's features that remain if it is reduced by ``factor``; 1 if it is not reduced.

    The levels of the pyramid are a factor of `SCALE` apart, and their numbers of features are proportional to
    their sides. A reduced picture lacks the largest levels.
    """
    beyond = SCALE**-LEVELS
    return max(_MIN_KEPT, (1 / max(factor, 1.0) - beyond) / (1 - beyond))


def _homography(
    source: NDArray[np.float32], target: NDArray[np.float32], reprojection_px: float
) -> tuple[NDArray[np.float64] | None, NDArray[np.uint8] | None]:
    """Homography (3, 3) from source to target and inlier mask (N, 1); points must be sorted best first."""
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


def places(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cell numbers (N,) of points (N, 2); points in one cell count as one place."""
    cells = np.floor(points / _PLACE_PX).astype(np.int64)
    return np.asarray(cells[:, 0] * 65536 + cells[:, 1], np.int64)


def distinct_places(points: NDArray[np.float32]) -> int:
    """Number of cells that contain a point."""
    return len(np.unique(places(points)))


def _covers(
    points: NDArray[np.float32], view: Features, homography: NDArray[np.float64], image_size: tuple[int, int]
) -> bool:
    """Whether the points span enough of the part of the view that is visible in the query image."""
    area = _area(points)
    width, height = np.ptp(view.keypoints, axis=0)
    if area >= _MIN_COVERAGE * float(width) * float(height):  # enough even if the whole view is visible
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
    """Standard deviation of the points across their narrow direction [px]."""
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    (xx, xy), (_, yy) = (centred.T @ centred / (len(points) - 1)).tolist()
    smaller = (xx + yy) / 2 - math.hypot((xx - yy) / 2, xy)  # eigenvalue of the covariance
    return math.sqrt(max(smaller, 0.0))


def log10_false_alarms(correspondences: int, inliers: int, radius_px: float, area_px: float) -> float:
    """Decimal logarithm of the number of homographies expected to agree equally well by chance.

    The a-contrario test of Moisan and Stival ("A probabilistic criterion to detect rigid point matches", IJCV
    2004) in the form for homographies (Moulon et al., ACCV 2012): under the background model, where the
    matched points lie anywhere, the expected number of homographies with k of n correspondences within r
    pixels is ::

        NFA(n, k) = (n - 4) C(n, k) C(k, 4) (pi r^2 / A)^(k - 4)

    with A the area of the image. A fixed number of inliers means less among 500 correspondences than among
    20; a fixed ratio means less among 20. This number has the same meaning for any number of correspondences.

    Parameters
    ----------
    correspondences, inliers : int
        n and k of the formula.
    radius_px : float
        Reprojection error below which a correspondence is an inlier.
    area_px : float
        Area of the image in which the error is measured, in square pixels.

    Returns
    -------
    float
        Below 0 if chance is unlikely. ``inf`` if there are at most the 4 inliers that every homography has.
    """
    if inliers <= _SAMPLE:
        return math.inf
    chance = min(1.0, math.pi * radius_px**2 / area_px)
    return (
        math.log10(max(correspondences - _SAMPLE, 1))
        + math.log10(math.comb(correspondences, inliers))
        + math.log10(math.comb(inliers, _SAMPLE))
        + (inliers - _SAMPLE) * math.log10(chance)
    )


def project_corners(homography: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64] | None:
    """Corners (4, 2) of an image of ``size`` under the homography; None if one is behind the camera."""
    corners = np.insert(_outline(size).astype(np.float64), 2, 1.0, axis=1)
    projected = corners @ (homography / homography[2, 2] if homography[2, 2] else homography).T
    if not np.isfinite(projected).all() or (projected[:, 2] <= 1e-6).any():
        return None
    return np.asarray(projected[:, :2] / projected[:, 2:])


def is_plausible(corners: NDArray[np.float64], image_size: tuple[int, int]) -> bool:
    """Whether corners (4, 2), clockwise from the top left, are a flat object seen from its front.

    They must be convex, not mirrored, not needle-shaped, neither too small nor too large, and overlap the
    image. ORB distinguishes a picture from its mirror image, so a mirrored quadrilateral is a false match.
    """
    # Python floats: for four corners, NumPy takes five times as long.
    points: list[list[float]] = corners.tolist()
    edges, lengths, area = [], [], 0.0
    for (x, y), (x_to, y_to) in zip(points, points[1:] + points[:1], strict=True):
        edges.append((x_to - x, y_to - y))
        lengths.append(math.hypot(x_to - x, y_to - y))
        area += 0.5 * (x * y_to - x_to * y)
    if min(lengths) < 1:
        return False
    for side in range(4):
        (x, y), (x_next, y_next) = edges[side - 1], edges[side]
        sine = (x * y_next - y * x_next) / (lengths[side - 1] * lengths[side])
        if sine < _MIN_SINE or lengths[side] / lengths[side - 2] > _MAX_FORESHORTENING:
            return False
    xs, ys = zip(*points, strict=True)
    overlaps = max(xs) > 0 and max(ys) > 0 and min(xs) < image_size[0] and min(ys) < image_size[1]
    return overlaps and _MIN_AREA <= area / (image_size[0] * image_size[1]) <= _MAX_AREA
