"""Multi-index hashing: FAISS `IndexBinaryMultiHash`.

A descriptor is filed under several pieces of its bits; a query looks only at descriptors that share a piece
(up to a few flipped bits) and compares those exactly. Norouzi et al., CVPR 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import Classifier, Neighbours, VotingRule
from nearsight.common.recognition.models import ObjectModel

_NEIGHBOURS = 4
_TABLES = 8
_BITS = 14


class MultiHashClassifier(Classifier):
    """Looks only at descriptors that share a hash key with the query."""

    name = "multihash"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule)
        self._index = faiss.IndexBinaryMultiHash(self._table.descriptors.shape[1] * 8, _TABLES, _BITS)
        self._index.nflip = 0
        if len(self._table.descriptors):
            self._index.add(self._table.descriptors)

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = self._index.search(np.ascontiguousarray(descriptors), _NEIGHBOURS)
        return distances, rows
