"""Chance as an explanation: how many homographies would so many correspondences fit by accident.

The a-contrario test of Moisan and Stival ("A probabilistic criterion to detect rigid point matches", IJCV
2004) in the form for homographies (Moulon et al., ACCV 2012): under the background model, where the matched
points lie anywhere, the expected number of homographies with k of n correspondences within r pixels is ::

    NFA(n, k) = (n - 4) C(n, k) C(k, 4) (pi r^2 / A)^(k - 4)

with A the area of the image. A fixed number of inliers means little among 20 correspondences and nothing
among 500; a fixed ratio the reverse. This number means the same everywhere.
"""

from __future__ import annotations

import math

_SAMPLE = 4
"""Correspondences that define a homography."""


def log10_false_alarms(correspondences: int, inliers: int, radius_px: float, area_px: float) -> float:
    """Decimal logarithm of the expected number of agreements as good as this one by chance.

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
        Below 0: unlikely by chance. ``inf`` if there are no more inliers than a homography always has.
    """
    if inliers <= _SAMPLE:
        return math.inf
    chance = min(1.0, math.pi * radius_px**2 / area_px)
    return (
        math.log10(max(correspondences - _SAMPLE, 1))
        + _log10_binomial(correspondences, inliers)
        + _log10_binomial(inliers, _SAMPLE)
        + (inliers - _SAMPLE) * math.log10(chance)
    )


def _log10_binomial(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
