"""Backends on FAISS: exact search, multi-index hashing and graph search. Searching is thread-safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.classifier import (
    NEIGHBOURS,
    TABLE_BYTES,
    Classifier,
    Neighbours,
)
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

_MIN_BITS, _MAX_BITS = 8, 21
_COPY_BYTES, _NUMBER_BYTES, _BUCKET_BYTES = 32, 8, 85
"""Memory of the hash tables [bytes]: a descriptor's copy, its number in each table, and (measured) a
bucket."""

_SAMPLE = 4000
_BLOCK = 4096
_IMBALANCE_WEIGHT = 4.0

_LINKS = 16
_CONSTRUCTION_EFFORT = 40
_SEARCH_EFFORT = 16


class ExactClassifier(Classifier):
    """Compares with every descriptor. The cost grows with k, but no backend is faster for a few objects.

    The reference for all other backends.
    """

    name = "exact"

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = faiss.knn_hamming(descriptors, self._table.descriptors, NEIGHBOURS)
        return distances, rows


class MultiHashClassifier(Classifier):
    """Multi-index hashing: FAISS `IndexBinaryMultiHash` (Norouzi et al., CVPR 2012).

    Each table stores a descriptor under a key, a subset of its bits. A query compares only descriptors that
    share a key with it, by their exact distance. The key length grows with log2 of the number of descriptors,
    so that a bucket holds a few of them for any size of the catalogue. So the cost of a lookup is nearly
    independent of k. The second matching of the verification compensates for neighbours that are missed.

    FAISS may return fewer neighbours than requested (row -1), because buckets can be empty. Adding is not
    thread-safe, so an index is never changed after it was built.
    """

    name = "multihash"
    search_bytes = 350
    tables: ClassVar[int] = 8
    """Number of hash tables."""

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        super().__init__(models, settings)
        descriptors = self._table.descriptors
        bits = key_length(len(descriptors))
        self._index = faiss.IndexBinaryMultiHash(descriptors.shape[1] * 8, self.tables, bits)
        self._index.nflip = 0
        if len(descriptors):
            self._order = choose_key_bits(descriptors, self.tables, bits)
            self._index.add(permute_bits(descriptors, self._order))

    @property
    def size_bytes(self) -> int:
        """Memory of the index [bytes], with the actual number of buckets; similar pictures have fewer."""
        buckets: int = self._index.hashtable_size()  # type: ignore[attr-defined]  # missing in its stubs
        entry_bytes = TABLE_BYTES + _COPY_BYTES + self.tables * _NUMBER_BYTES
        return len(self._table.descriptors) * entry_bytes + buckets * _BUCKET_BYTES

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        faiss.omp_set_num_threads(1)
        distances, rows = self._index.search(permute_bits(descriptors, self._order), NEIGHBOURS)
        return distances, rows


class SmallHashClassifier(MultiHashClassifier):
    """Multi-index hashing with two tables: a quarter of the build time and 40 % of the memory.

    It misses more neighbours. This seldom changes the answer, because a photo has hundreds of features
    (decision 060).
    """

    name = "smallhash"
    search_bytes = 115
    tables = 2


def key_length(descriptors: int) -> int:
    """Bits per key: log2 of the number of descriptors minus one, so that an average bucket holds two."""
    return int(np.clip(round(np.log2(max(descriptors, 1))) - 1, _MIN_BITS, _MAX_BITS))


class HnswClassifier(Classifier):
    """Graph search: FAISS `IndexBinaryHNSW` (Malkov and Yashunin, TPAMI 2020).

    The cost per descriptor grows with log k. Building takes about 30 ms per object and thread, ten times as
    long as hash tables, so this backend suits catalogues that seldom change.
    """

    name = "hnsw"
    search_bytes = 177

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        super().__init__(models, settings)
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


def choose_key_bits(descriptors: NDArray[np.uint8], tables: int, bits: int) -> NDArray[np.int64]:
    """A permutation of the descriptor's bits: the first ``bits`` are the key of table 0, and so on.

    FAISS uses consecutive bits as the key of each table. Descriptor bits are correlated, so some buckets
    would be crowded and others empty, and every query pays for the crowded ones. Balanced bits with little
    correlation make the sizes of buckets more even. With 500 objects this halves the time at the same recall.

    Greedy and deterministic: each table in turn takes the free bit with the smallest sum of squared
    correlations with the bits that it already has, plus a penalty for bits that are mostly 0 or mostly 1.

    Parameters
    ----------
    descriptors : ndarray, (M, 32) uint8
    tables, bits : int
        ``tables * bits`` must not exceed 256.
    """
    width = descriptors.shape[1] * 8
    step = max(1, len(descriptors) // _SAMPLE)
    sample = unpack(descriptors[::step]).astype(np.float64)
    mean = sample.mean(axis=0)
    centred = sample - mean
    deviation = np.sqrt((centred**2).mean(axis=0))
    scale = np.where(deviation > 0, deviation, np.inf)
    correlation = (centred.T @ centred) / len(sample) / np.outer(scale, scale)
    cost = np.tile(_IMBALANCE_WEIGHT * (mean - 0.5) ** 2, (tables, 1))
    chosen = np.empty((tables, bits), np.int64)
    free = np.ones(width, bool)
    for position in range(bits):
        for table in range(tables):
            bit = int(np.where(free, cost[table], np.inf).argmin())
            chosen[table, position] = bit
            free[bit] = False
            cost[table] += correlation[bit] ** 2
    return np.concatenate([chosen.ravel(), np.flatnonzero(free)])


def permute_bits(descriptors: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Descriptors (N, 32) with their bits in another order; Hamming distances do not change."""
    # In blocks: NumPy holds the interpreter lock during an indexing operation. A single one would block all
    # concurrent requests during the build of a large index. Also, bits take eight times the memory of bytes.
    permuted = np.empty_like(descriptors)
    for start in range(0, len(descriptors), _BLOCK):
        bits = np.unpackbits(descriptors[start : start + _BLOCK], axis=1, bitorder="little")
        permuted[start : start + _BLOCK] = np.packbits(
            np.take(bits, order, axis=1), axis=1, bitorder="little"
        )
    return permuted


def unpack(descriptors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits (N, 256) of descriptors (N, 32), in FAISS's bit order."""
    return np.unpackbits(descriptors, axis=1, bitorder="little")
