"""What a peer could share who wants photos of one object to be answered as another.

He has both vouched models, knows the rules, and does his best within them: every descriptor of the view stays
as near to the vouched one as an honest device would leave it, so no check of the view alone can refuse it. He
lays the victim's picture over the other in many ways, keeps the one with the most features side by side, and
moves each descriptor as far towards the victim's as he may.
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
    """A view of ``claimed`` that is made to answer photos of ``victim``; it passes every check of its own.

    Parameters
    ----------
    claimed, victim : ObjectModel
        Vouched.
    rules : AdaptationRules
        Known to everybody.
    rng : Generator
        Draws the ways to lay one picture over the other.
    """
    base, other = claimed.views[0], victim.views[0]
    best = _Pairs(0, np.empty(0, np.int64), np.empty(0, np.int64))
    for number in range(_TRIES):
        placed = other.keypoints if number == 0 else _laid_over(other.keypoints, base.image_size, rng)
        found = _pairs(base, other, np.asarray(placed, np.float32), rules)
        if number == 0 or found.useful > best.useful:
            best = found
    if len(best.base) < rules.min_features:  # the pictures hardly overlap: a view all the same
        every = np.arange(min(len(base), len(other), rules.max_features))
        best = _Pairs(0, every, every)
    descriptors = moved(base.descriptors[best.base], other.descriptors[best.other], rules.max_bits)
    return AdaptedView(claimed.object_id, claimed.version, 0, best.base.astype(np.int32), descriptors)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Features of two pictures that lie side by side, and how many of them can be made to match."""

    useful: int
    base: NDArray[np.int64]
    other: NDArray[np.int64]


def _pairs(base: Features, other: Features, placed: NDArray[np.float32], rules: AdaptationRules) -> _Pairs:
    """For each feature the most similar one beside it, as many as a view may have, in rising order."""
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
    """Descriptors (M, 32) with at most ``max_bits`` of the bits changed that differ from other ones."""
    differs = np.unpackbits(start ^ towards, axis=1)
    allowed = differs & (np.cumsum(differs, axis=1) <= max_bits)
    return start ^ np.packbits(allowed.astype(np.uint8), axis=1)


def _laid_over(
    points: NDArray[np.float32], size: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Points turned, scaled and shifted at random about the middle of a picture."""
    angle, scale = rng.uniform(-np.pi, np.pi), np.exp(rng.uniform(-0.6, 0.6))
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array(size) / 2 + rng.normal(0, 0.1 * min(size), 2)
    return np.asarray((points - points.mean(axis=0)) @ turn.T + middle, np.float64)
