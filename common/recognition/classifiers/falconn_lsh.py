"""Multi-probe cross-polytope LSH: FALCONN (Andoni et al., NeurIPS 2015). An optional library without wheels.

A binary descriptor becomes a vector of ±1: its squared Euclidean distance is four times the Hamming distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import MissingDependency
from nearsight.common.recognition.classifiers.base import NEIGHBOURS, Classifier, Neighbours, VotingRule
from nearsight.common.recognition.classifiers.key_bits import unpack
from nearsight.common.recognition.models import ObjectModel

_TABLES = 10
_PROBES = 30
_SEED = 1


class FalconnClassifier(Classifier):
    """FALCONN's tables over ±1 vectors: 1 KB of memory per descriptor.

    Raises
    ------
    MissingDependency
        If the library is not installed.
    """

    name = "falconn"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        falconn = _library()
        super().__init__(models, rule)
        self._vectors = _as_vectors(self._table.descriptors)  # FALCONN keeps a pointer, not a copy
        if not len(self._vectors):
            return
        if len(self._vectors) == 1:  # FALCONN crashes with a single point: give it the opposite one too
            self._vectors = np.concatenate([self._vectors, -self._vectors])
        dimension = self._vectors.shape[1]
        parameters = falconn.get_default_parameters(
            len(self._vectors), dimension, falconn.DistanceFunction.EuclideanSquared, True
        )
        parameters.l = _TABLES
        parameters.seed = _SEED
        parameters.num_setup_threads = 1
        self._index = falconn.LSHIndex(parameters)
        self._index.setup(self._vectors)
        self._pool = self._index.construct_query_pool(
            _PROBES
        )  # a pool, unlike a query object, is thread-safe

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        count = len(self._table.descriptors)
        distances = np.full((len(descriptors), NEIGHBOURS), np.iinfo(np.int32).max, np.int32)
        rows = np.full((len(descriptors), NEIGHBOURS), -1, np.int64)
        for index, vector in enumerate(_as_vectors(descriptors)):
            found = [row for row in self._pool.find_k_nearest_neighbors(vector, NEIGHBOURS) if row < count]
            rows[index, : len(found)] = found
            differing = np.bitwise_count(self._table.descriptors[found] ^ descriptors[index])
            distances[index, : len(found)] = differing.sum(axis=1, dtype=np.int32)
        return distances, rows


def _as_vectors(descriptors: NDArray[np.uint8]) -> NDArray[np.float32]:
    return unpack(descriptors).astype(np.float32) * 2 - 1


def _library() -> Any:
    try:
        import falconn  # noqa: PLC0415 optional: asked for only where the backend is chosen
    except ImportError as error:
        raise MissingDependency(
            "the backend 'falconn' needs the library falconn", advice="install it with: make falconn"
        ) from error
    return falconn
