"""Requests that follow Zipf's law over a catalogue with minimal random variation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.framework.numbers import zipf
from nearsight.experiments.rig.edge_bench import BenchRequest
from nearsight.experiments.traces.plan import photos_by_object

EXPONENT = 0.8
_EARLIER_DEVICES = 64


def systematic_ranks(shares: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ranks, from 0, of ``count`` requests in random order, (count,).

    Systematic sampling: for every k, the number of requests for the first k objects differs from its expected
    value by at most one. With independent draws, hit ratios would vary by chance.
    """
    quantiles = (np.arange(count) + rng.random()) / count
    ranks = np.searchsorted(np.cumsum(shares), quantiles).clip(max=len(shares) - 1)
    return rng.permutation(ranks)


class ZipfVisitors:
    """Visitors whose requests follow Zipf's law; objects are assigned to ranks at random.

    Parameters
    ----------
    dataset : Dataset
        Objects and their photos.
    rng : Generator
        Draws the ranks.
    """

    def __init__(self, dataset: Dataset, rng: np.random.Generator) -> None:
        self._photos = photos_by_object(dataset)
        self._objects = [str(name) for name in rng.permutation(sorted(self._photos))]
        self._shares = zipf(len(self._objects), EXPONENT)

    def reports(self, count: int, rng: np.random.Generator) -> list[tuple[str, str]]:
        """Earlier requests as (device, object)."""
        ranks = systematic_ranks(self._shares, count, rng)
        return [
            (f"earlier-{number % _EARLIER_DEVICES}", self._objects[rank]) for number, rank in enumerate(ranks)
        ]

    def requests(self, count: int, rng: np.random.Generator) -> list[BenchRequest]:
        """Draw photos for new requests."""
        requests = []
        for rank in systematic_ranks(self._shares, count, rng):
            object_id = self._objects[rank]
            photos = self._photos[object_id]
            requests.append(
                BenchRequest(object_id, int(rank) + 1, Path(photos[int(rng.integers(len(photos)))]))
            )
        return requests
