"""Zipf's law over a catalogue, and requests that follow it with as little chance as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument


def zipf_shares(objects: int, exponent: float) -> NDArray[np.float64]:
    """Share of the requests of the object of each rank, the most popular first, (N,).

    Raises
    ------
    InvalidArgument
        If there is no object.
    """
    if objects < 1:
        raise InvalidArgument(f"a distribution needs objects, got {objects}")
    weights: NDArray[np.float64] = np.arange(1, objects + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def systematic_ranks(shares: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks, from 0, of so many requests in random order, (count,).

    Sampled systematically: the number of requests for the first k objects is that of the distribution to
    within one, for every k. Independent draws of as many requests would make hit ratios wander by chance.
    """
    quantiles = (np.arange(count) + rng.random()) / count
    ranks = np.searchsorted(np.cumsum(shares), quantiles).clip(max=len(shares) - 1)
    return rng.permutation(ranks)
