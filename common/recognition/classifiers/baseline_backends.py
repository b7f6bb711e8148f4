"""Backends for comparison: the OpenCV matchers that the dissertation used, and FALCONN."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import MissingDependency
from nearsight.common.recognition.classifiers.classifier import NEIGHBOURS, Classifier, Neighbours
from nearsight.common.recognition.classifiers.faiss_backends import unpack
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

_FLANN_INDEX_LSH = 6
_FLANN_TABLES, _KEY_BITS, _PROBE_LEVEL = 12, 16, 1
_BLOCK_ROWS = 2**17
"""Rows per block. `BFMatcher` packs row and block into one int and refuses blocks of 2**18 rows."""
_FALCONN_TABLES, _FALCONN_PROBES, _FALCONN_SEED = 10, 30, 1


class _OpenCvClassifier(Classifier):
    """Base of both OpenCV backends: one matcher, trained with all rows in blocks.

    OpenCV does not guarantee that a matcher can be shared between threads (`knnMatch` is not const), so a
    lock admits one thread at a time.
    """

    def __init__(
        self, models: Sequence[ObjectModel], settings: RecognitionSettings, matcher: cv2.DescriptorMatcher
    ) -> None:
        super().__init__(models, settings)
        self._lock = threading.Lock()
        self._matcher = matcher
        if len(self._table.descriptors):
            rows = self._table.descriptors
            matcher.add([rows[start : start + _BLOCK_ROWS] for start in range(0, len(rows), _BLOCK_ROWS)])
            matcher.train()

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        # FLANN refuses to return more neighbours than rows.
        wanted = min(NEIGHBOURS, len(self._table.descriptors))
        with self._lock:
            found = self._matcher.knnMatch(descriptors, wanted)
        distances, rows = _none_found(len(descriptors))
        for index, matches in enumerate(found):
            for rank, match in enumerate(matches):
                distances[index, rank] = int(match.distance)
                rows[index, rank] = match.imgIdx * _BLOCK_ROWS + match.trainIdx
        return distances, rows


class FlannLshClassifier(_OpenCvClassifier):
    """FLANN's LSH with the authors' parameters: 12 tables, key size 16, multi-probe level 1.

    FLANN draws the bits of the tables from a random generator that the whole process shares. One index always
    gives the same answers; two indexes of the same models may differ.
    """

    name = "flann-lsh"
    search_bytes = 453

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        parameters: dict[str, bool | int | float | str] = {
            "algorithm": _FLANN_INDEX_LSH,
            "table_number": _FLANN_TABLES,
            "key_size": _KEY_BITS,
            "multi_probe_level": _PROBE_LEVEL,
        }
        super().__init__(models, settings, cv2.FlannBasedMatcher(parameters, {}))


class BruteForceClassifier(_OpenCvClassifier):
    """OpenCV's `BFMatcher`: exact; the dissertation's brute-force baseline."""

    name = "brute-force"

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        super().__init__(models, settings, cv2.BFMatcher(cv2.NORM_HAMMING))


class FalconnClassifier(Classifier):
    """Multi-probe cross-polytope LSH: FALCONN (Andoni et al., NeurIPS 2015); the library has no wheels.

    A binary descriptor becomes a vector of ±1, for which the squared Euclidean distance is four times the
    Hamming distance. This takes 1 KB of memory per descriptor.

    Raises
    ------
    MissingDependency
        If the library is not installed.
    """

    name = "falconn"
    search_bytes = 1080

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        falconn = _library()
        super().__init__(models, settings)
        self._vectors = _as_vectors(self._table.descriptors)  # FALCONN keeps a pointer, not a copy
        if not len(self._vectors):
            return
        if len(self._vectors) == 1:  # FALCONN crashes with a single point, so the opposite point is added
            self._vectors = np.concatenate([self._vectors, -self._vectors])
        dimension = self._vectors.shape[1]
        parameters = falconn.get_default_parameters(
            len(self._vectors), dimension, falconn.DistanceFunction.EuclideanSquared, True
        )
        parameters.l = _FALCONN_TABLES
        parameters.seed = _FALCONN_SEED
        parameters.num_setup_threads = 1
        self._index = falconn.LSHIndex(parameters)
        self._index.setup(self._vectors)
        # A query pool is thread-safe; a query object is not.
        self._pool = self._index.construct_query_pool(_FALCONN_PROBES)

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        count = len(self._table.descriptors)
        distances, rows = _none_found(len(descriptors))
        for index, vector in enumerate(_as_vectors(descriptors)):
            found = [row for row in self._pool.find_k_nearest_neighbors(vector, NEIGHBOURS) if row < count]
            rows[index, : len(found)] = found
            differing = np.bitwise_count(self._table.descriptors[found] ^ descriptors[index])
            distances[index, : len(found)] = differing.sum(axis=1, dtype=np.int32)
        return distances, rows


def _none_found(queries: int) -> Neighbours:
    shape = (queries, NEIGHBOURS)
    return np.full(shape, np.iinfo(np.int32).max, np.int32), np.full(shape, -1, np.int64)


def _as_vectors(descriptors: NDArray[np.uint8]) -> NDArray[np.float32]:
    return unpack(descriptors).astype(np.float32) * 2 - 1


def _library() -> Any:
    try:
        import falconn  # noqa: PLC0415 optional: imported only if this backend is chosen
    except ImportError as error:
        raise MissingDependency(
            "the backend 'falconn' needs the library falconn", advice="install it with: make falconn"
        ) from error
    return falconn
