"""Exact nearest neighbours: FAISS `IndexBinaryFlat`. The reference for every other backend."""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import NEIGHBOURS, Classifier, Neighbours, VotingRule
from nearsight.common.recognition.models import ObjectModel


class ExactClassifier(Classifier):
    """Compares with every descriptor; the cost grows with k, but nothing is faster for a few objects."""

    name = "exact"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule)

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = faiss.knn_hamming(descriptors, self._table.descriptors, NEIGHBOURS)
        return distances, rows
