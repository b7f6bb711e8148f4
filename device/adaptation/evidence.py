"""Whether the vouched model itself supports an answer, and where it sees the object.

Adapted descriptors may give the position of an object, but no evidence for it: whoever shares them could have
changed each of them towards another object. If the homography is known, vouched descriptors need no ratio
test for matching: the photo has a feature near the expected position of the vouched one, which is similar or
not. The features that agree then give a better homography, and so on, as long as more features agree.

How many must agree is decided a contrario, as in `verification`. Under the background model, a feature of the
photo and a vouched one near its position are unrelated. They are similar with the probability p(b) that pairs
*anywhere* in the two images differ in at most b bits; it is large if a pattern repeats. Let n be the number
of positions of the view with a feature of the photo nearby, of which k agree to within b bits. The expected
number of homographies that agree so well by chance is ::

    NFA = B (A / (pi r^2))^4  P(Binomial(n, p(b)) >= k)

with r the radius, A the area of the photo (four corners, each distinguished to within r) and B the number of
values of b that are tried; the smallest NFA is used. All homographies are counted, also those that an
attacker could find who knows both objects and has time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.recognition.verification import distinct_places, places
from nearsight.device.adaptation.adapted_view import AdaptationRules, hamming

CHANCES = {32: 2e-5, 40: 1e-4, 48: 3e-4, 56: 1e-3, 64: 3e-3}
"""Bits, and the lowest p(b) that is assumed. Measured on 150 pairs of exhibits, 50,000 pairs of features
each: 2e-6, 2e-5, 1.4e-4, 7e-4, 2.4e-3."""

_SAMPLED_QUERY, _SAMPLED_VIEW = 200, 250
"""Number of features between which p(b) is measured."""
_WIDER = (3.0, 2.0, 1.5)
"""Radii in which more agreement is searched, as multiples of ``radius_px``."""
_LEAST_MATCHES = 8
_RANSAC_PX = 5.0
_RANSAC_ITERATIONS = 1000

Homography = NDArray[np.float64]


class Agreement(NamedTuple):
    """Features of a photo and of a view that are at each other's position and similar."""

    query: NDArray[np.int32]
    view: NDArray[np.int32]
    """(M,) int32: features that agree, the most similar first; each at most once."""
    bits: NDArray[np.int64]
    """(M,) int64: distances of their descriptors in bits, in non-decreasing order."""
    candidates: NDArray[np.int64]
    """Number of pairs at each position of the view that has any."""


class Evidence(NamedTuple):
    """Agreement of one vouched view with a photo under one homography."""

    view: int
    """Index of the view."""
    agreement: Agreement
    log10_false_alarms: float
    """Decimal logarithm of the NFA."""


def evidence_for(
    query: Features, model: ObjectModel, found: RecognizedObject, rules: AdaptationRules
) -> Evidence:
    """The strongest evidence of any view of the vouched model for an answer; empty without corners."""
    every = [_of_view(query, view, index, found.corners, rules) for index, view in enumerate(model.views)]
    return min(every, key=lambda one: one.log10_false_alarms)


def _of_view(
    query: Features, view: Features, index: int, corners: Corners | None, rules: AdaptationRules
) -> Evidence:
    homography = _homography_to(query, view, corners)
    if homography is None or not len(query) or not len(view):
        nothing = np.empty(0, np.int64)
        return Evidence(index, Agreement(_NONE, _NONE, nothing, nothing), math.inf)
    chances = _chances(query.descriptors, view.descriptors)
    best = _agreement(query, view, homography, rules.radius_px)
    least = _log10_false_alarms(query, view, best, chances, rules.radius_px)
    for wider in _WIDER:
        better = _fitted(query, view, _agreement(query, view, homography, wider * rules.radius_px))
        if better is None:
            break
        found = _agreement(query, view, better, rules.radius_px)
        log10_false_alarms = _log10_false_alarms(query, view, found, chances, rules.radius_px)
        if log10_false_alarms >= least:
            break
        homography, best, least = better, found, log10_false_alarms
    return Evidence(index, best, least)


_NONE = np.empty(0, np.int32)


def _agreement(query: Features, view: Features, homography: Homography, radius_px: float) -> Agreement:
    near_query, near_view = _pairs_in_place(query, view, homography, radius_px)
    bits = hamming(query.descriptors[near_query], view.descriptors[near_view])
    similar = np.flatnonzero(bits <= max(CHANCES))
    similar = similar[np.argsort(bits[similar], kind="stable")]
    for side in (near_view, near_query):
        _, first = np.unique(side[similar], return_index=True)
        similar = similar[np.sort(first)]
    _, candidates = np.unique(places(view.keypoints[near_view]), return_counts=True)
    return Agreement(near_query[similar], near_view[similar], bits[similar], candidates)


def _pairs_in_place(
    query: Features, view: Features, homography: Homography, radius_px: float
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """All pairs of a feature of the photo and a feature of the view with this expected position."""
    expected = cv2.perspectiveTransform(view.keypoints[:, np.newaxis].astype(np.float64), homography)[:, 0]
    inside = (expected >= 0).all(axis=1) & (expected < np.array(query.image_size)).all(axis=1)
    visible = np.flatnonzero(inside)
    if not len(visible):
        return _NONE, _NONE
    points, places = query.keypoints, expected[visible].astype(np.float32)
    squared = (points**2).sum(axis=1)[:, np.newaxis] + (places**2).sum(axis=1) - 2 * (points @ places.T)
    near_query, near_view = np.nonzero(squared <= radius_px**2)
    return near_query.astype(np.int32), visible[near_view].astype(np.int32)


def _homography_to(query: Features, view: Features, corners: Corners | None) -> Homography | None:
    """The homography from the view to the processed photo; None if corners are missing or degenerate."""
    if corners is None:
        return None
    width, height = view.image_size
    source = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    scale = np.array(query.image_size, np.float64) / np.array(query.source_size, np.float64)
    target = (np.array(corners, np.float64) * scale).astype(np.float32)
    if not np.isfinite(target).all():
        return None
    return _usable(cv2.getPerspectiveTransform(source, target))


def _fitted(query: Features, view: Features, agreement: Agreement) -> Homography | None:
    """The homography that fits most of the agreeing features; None if there are too few."""
    if len(agreement.bits) < _LEAST_MATCHES:
        return None
    found, _mask = cv2.findHomography(
        view.keypoints[agreement.view],
        query.keypoints[agreement.query],
        cv2.RANSAC,
        _RANSAC_PX,
        maxIters=_RANSAC_ITERATIONS,
    )
    return _usable(found)


def _usable(homography: object) -> Homography | None:
    found = np.asarray(homography, np.float64)
    usable = found.shape == (3, 3) and np.isfinite(found).all() and abs(np.linalg.det(found)) > 1e-9
    return found if usable else None


def _log10_false_alarms(
    query: Features, view: Features, agreement: Agreement, chances: dict[int, float], radius_px: float
) -> float:
    area = query.image_size[0] * query.image_size[1]
    homographies = max(1.0, area / (math.pi * radius_px**2)) ** 4
    least = 0.0
    for bits, chance in chances.items():
        near = agreement.bits <= bits
        agreeing = min(
            distinct_places(query.keypoints[agreement.query[near]]),
            distinct_places(view.keypoints[agreement.view[near]]),
        )
        # A position with several candidates agrees by chance more often. With the mean over all positions,
        # the tail is an upper bound (Hoeffding 1956), as k is above the mean wherever the tail is small.
        of_place = 1 - (1 - chance) ** agreement.candidates
        mean = float(of_place.mean()) if len(of_place) else 1.0
        least = min(least, log10_tail(len(of_place), agreeing, mean))
    return math.log10(homographies * len(chances)) + least


def _chances(query: NDArray[np.uint8], view: NDArray[np.uint8]) -> dict[int, float]:
    """p(b), from a sample of pairs of descriptors at any positions."""
    some = query[:: max(1, len(query) // _SAMPLED_QUERY)]
    others = view[:: max(1, len(view) // _SAMPLED_VIEW)]
    bits = hamming(some[:, np.newaxis], others)
    return {limit: max(floor, float((bits <= limit).mean())) for limit, floor in CHANCES.items()}


def log10_tail(trials: int, least: int, chance: float) -> float:
    """Decimal logarithm of an upper bound of P(Binomial(trials, chance) >= least); 0 up to the mean."""
    if least <= trials * chance or least > trials or chance >= 1:
        return 0.0
    first = (
        math.lgamma(trials + 1)
        - math.lgamma(least + 1)
        - math.lgamma(trials - least + 1)
        + least * math.log(chance)
        + (trials - least) * math.log1p(-chance)
    )
    # The terms decrease at least as fast as a geometric series with the ratio of the first two.
    ratio = (trials - least) / (least + 1) * chance / (1 - chance)
    return min(0.0, (first - math.log1p(-ratio)) / math.log(10))
