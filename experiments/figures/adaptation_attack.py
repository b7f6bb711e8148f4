"""What a peer could share who wants photos of one object to be answered as another.

He has both vouched models, knows the rules, and does his best within them: every descriptor of the view stays
as near to the vouched one as an honest device would leave it, so no check of the view alone can refuse it. He
lays the victim's picture over the other in many ways, keeps the one with the most features side by side, and
moves each descriptor as far towards the victim's as he may.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.models import ObjectModel
from nearsight.device.adaptation.adapted_view import AdaptedView, hamming
from nearsight.device.adaptation.rules import AdaptationRules

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
    bits = _all_bits(base.descriptors, other.descriptors)
    best: tuple[int, NDArray[np.intp], NDArray[np.intp]] | None = None
    for number in range(_TRIES):
        placed = other.keypoints if number == 0 else _laid_over(other.keypoints, base.image_size, rng)
        apart = np.linalg.norm(base.keypoints[:, np.newaxis] - placed, axis=-1)
        left = np.where(apart <= _NEAR_PX, bits - rules.max_bits, 256)
        mine, theirs = np.arange(len(base)), left.argmin(axis=1)
        useful = int((left[mine, theirs] <= rules.max_bits).sum())
        if best is None or useful > best[0]:
            order = np.argsort(left[mine, theirs], kind="stable")[: rules.max_features]
            chosen = np.sort(order[left[mine, theirs][order] < 256])
            best = useful, chosen, theirs[chosen]
    if best is None or len(best[1]) < rules.min_features:
        chosen = np.arange(min(len(base), rules.max_features))
        best = 0, chosen, bits[chosen].argmin(axis=1)
    _, chosen, towards = best
    descriptors = moved(base.descriptors[chosen], other.descriptors[towards], rules.max_bits)
    return AdaptedView(claimed.object_id, claimed.version, 0, chosen.astype(np.int32), descriptors)


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


def _all_bits(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.stack([hamming(one, second) for one in first])
