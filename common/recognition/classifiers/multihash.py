"""Multi-index hashing: FAISS `IndexBinaryMultiHash` (Norouzi et al., CVPR 2012).

A descriptor is filed under several pieces of its bits; a query looks only at descriptors that share a piece
and compares those exactly. The keys grow with log2 of the number of descriptors, so that a bucket holds a few
of them whatever the size of the catalogue: that keeps the cost of a lookup nearly flat in k. What it loses in
neighbours, the second look of the verification makes up for.

FAISS may return fewer neighbours than asked for (row -1): buckets can be empty. Searching is read-only and
thread-safe; adding is not, which is why an index is never changed after it was built.
"""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import NEIGHBOURS, Classifier, Neighbours, VotingRule
from nearsight.common.recognition.classifiers.key_bits import choose_key_bits, permute_bits
from nearsight.common.recognition.models import ObjectModel

_TABLES = 8
_MIN_BITS, _MAX_BITS = 8, 21


class MultiHashClassifier(Classifier):
    """Looks only at descriptors that share a hash key with the query."""

    name = "multihash"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule)
        descriptors = self._table.descriptors
        bits = key_length(len(descriptors))
        self._index = faiss.IndexBinaryMultiHash(descriptors.shape[1] * 8, _TABLES, bits)
        self._index.nflip = 0
        if len(descriptors):
            self._order = choose_key_bits(descriptors, _TABLES, bits)
            self._index.add(permute_bits(descriptors, self._order))

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = self._index.search(permute_bits(descriptors, self._order), NEIGHBOURS)
        return distances, rows


def key_length(descriptors: int) -> int:
    """Bits per key: log2 of the number of descriptors less one, so that an average bucket holds two."""
    return int(np.clip(round(np.log2(max(descriptors, 1))) - 1, _MIN_BITS, _MAX_BITS))
