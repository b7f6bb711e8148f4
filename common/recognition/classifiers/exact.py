"""Exact nearest neighbours: FAISS `IndexBinaryFlat`. The reference for every other backend."""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import Classifier, Neighbours, VotingRule
from nearsight.common.recognition.models import ObjectModel

_NEIGHBOURS = 4


class ExactClassifier(Classifier):
    """Compares with every descriptor; cost grows with k."""

    name = "exact"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule)
        self._index = faiss.IndexBinaryFlat(self._table.descriptors.shape[1] * 8)
        if len(self._table.descriptors):
            self._index.add(self._table.descriptors)

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = self._index.search(np.ascontiguousarray(descriptors), _NEIGHBOURS)
        return distances, rows
