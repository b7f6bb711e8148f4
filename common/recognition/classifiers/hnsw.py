"""Graph search: FAISS `IndexBinaryHNSW` (Malkov and Yashunin, TPAMI 2020).

The cost per descriptor grows with log k. Building takes about 30 ms per object and thread, ten times that of
the hash tables, so it suits a catalogue that seldom changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import NEIGHBOURS, Classifier, Neighbours, VotingRule
from nearsight.common.recognition.models import ObjectModel

_LINKS = 16
_CONSTRUCTION_EFFORT = 40
_SEARCH_EFFORT = 16


class HnswClassifier(Classifier):
    """Walks a graph of near descriptors. Searching is read-only and thread-safe."""

    name = "hnsw"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule)
        faiss.omp_set_num_threads(1)  # the graph depends on the order of insertion
        self._index = faiss.IndexBinaryHNSW(self._table.descriptors.shape[1] * 8, _LINKS)
        self._index.hnsw.efConstruction = _CONSTRUCTION_EFFORT
        self._index.hnsw.efSearch = _SEARCH_EFFORT
        if len(self._table.descriptors):
            self._index.add(self._table.descriptors)

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = self._index.search(np.ascontiguousarray(descriptors), NEIGHBOURS)
        return distances, rows
