"""Which bits of a descriptor make good hash keys.

FAISS takes consecutive bits for each table. Descriptor bits are correlated, so some keys are crowded and
others empty, and every query pays for the crowded ones. Choosing for each table bits that are balanced and
little correlated with each other evens the buckets out: on 500 objects it halves the time at the same recall.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SAMPLE = 4000
_BLOCK = 4096
_IMBALANCE_WEIGHT = 4.0


def choose_key_bits(descriptors: NDArray[np.uint8], tables: int, bits: int) -> NDArray[np.int64]:
    """A permutation of the descriptor's bits: the first ``bits`` are the key of table 0, and so on.

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
    """Descriptors (N, 32) with their bits in another order; Hamming distances stay the same."""
    # In blocks: NumPy keeps the interpreter's lock for a whole indexing, which would stop all requests that
    # are served beside the build of a large index; and bits take eight times the memory of bytes.
    blocks = (descriptors[start : start + _BLOCK] for start in range(0, max(1, len(descriptors)), _BLOCK))
    permuted = [
        np.packbits(np.take(unpack(block), order, axis=1), axis=1, bitorder="little") for block in blocks
    ]
    return permuted[0] if len(permuted) == 1 else np.concatenate(permuted)


def unpack(descriptors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits (N, 256) of descriptors (N, 32), in the order in which FAISS reads them."""
    return np.unpackbits(descriptors, axis=1, bitorder="little")
