"""Forges a shared view of one object that makes photos of another object match it.

The attacker has both vouched models and knows the rules. Every descriptor of the forged view stays as close
to the vouched one as in an honest view, so no check of the view alone can reject it. The attacker overlays
the victim's picture on the other in many ways and keeps the overlay with the most neighbouring features. Then
each descriptor is moved as far towards the victim's as the rules allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView, hamming

_TRIES = 60
_NEAR_PX = 4.0


def forged_view(
    claimed: ObjectModel, victim: ObjectModel, rules: AdaptationRules, rng: np.random.Generator
) -> AdaptedView:
    """Forge a view of ``claimed`` that matches photos of ``victim`` and passes every check of the view alone.

    Parameters
    ----------
    claimed, victim : ObjectModel
        Vouched models.
    rules : AdaptationRules
        The public rules for views.
    rng : Generator
        Draws the overlays of the two pictures.
    """
    base, other = claimed.views[0], victim.views[0]
    best = _Pairs(0, np.empty(0, np.int64), np.empty(0, np.int64))
    for number in range(_TRIES):
        placed = other.keypoints if number == 0 else _laid_over(other.keypoints, base.image_size, rng)
        found = _pairs(base, other, np.asarray(placed, np.float32), rules)
        if number == 0 or found.useful > best.useful:
            best = found
    if len(best.base) < rules.min_features:  # The pictures hardly overlap; make a view nevertheless.
        every = np.arange(min(len(base), len(other), rules.max_features))
        best = _Pairs(0, every, every)
    descriptors = moved(base.descriptors[best.base], other.descriptors[best.other], rules.max_bits)
    return AdaptedView(claimed.object_id, claimed.version, 0, best.base.astype(np.int32), descriptors)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of neighbouring features of two overlaid pictures.

    ``useful`` is the number of pairs whose descriptors can be made to match; ``base`` and ``other`` are
    indices.
    """

    useful: int
    base: NDArray[np.int64]
    other: NDArray[np.int64]


def _pairs(base: Features, other: Features, placed: NDArray[np.float32], rules: AdaptationRules) -> _Pairs:
    """Pair each feature with its most similar neighbour; as many pairs as a view may have, ascending."""
    squared = (base.keypoints**2).sum(axis=1)[:, np.newaxis] + (placed**2).sum(axis=1)
    squared -= 2 * (base.keypoints @ placed.T)
    mine, theirs = np.nonzero(squared <= _NEAR_PX**2)
    left = hamming(base.descriptors[mine], other.descriptors[theirs]) - rules.max_bits
    order = np.lexsort((left, mine))
    _, first = np.unique(mine[order], return_index=True)
    nearest = order[first]
    kept = nearest[np.sort(np.argsort(left[nearest], kind="stable")[: rules.max_features])]
    return _Pairs(int((left[kept] <= rules.max_bits).sum()), mine[kept], theirs[kept])


def moved(start: NDArray[np.uint8], towards: NDArray[np.uint8], max_bits: int) -> NDArray[np.uint8]:
    """Descriptors (M, 32) with up to ``max_bits`` of the bits changed that differ from ``towards``."""
    differs = np.unpackbits(start ^ towards, axis=1)
    allowed = differs & (np.cumsum(differs, axis=1) <= max_bits)
    return start ^ np.packbits(allowed.astype(np.uint8), axis=1)


def _laid_over(
    points: NDArray[np.float32], size: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Rotate, scale and shift points randomly about the centre of a picture."""
    angle, scale = rng.uniform(-np.pi, np.pi), np.exp(rng.uniform(-0.6, 0.6))
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array(size) / 2 + rng.normal(0, 0.1 * min(size), 2)
    return np.asarray((points - points.mean(axis=0)) @ turn.T + middle, np.float64)
