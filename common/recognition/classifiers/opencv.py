"""The matchers of OpenCV that the dissertation used: LSH tables of FLANN, and brute force."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.base import NEIGHBOURS, Classifier, Neighbours, VotingRule
from nearsight.common.recognition.models import ObjectModel

_FLANN_INDEX_LSH = 6
_TABLES, _KEY_BITS, _PROBE_LEVEL = 12, 16, 1
_BLOCK_ROWS = 2**17
"""`BFMatcher` packs row and block into one int and refuses blocks of 2**18 rows."""


class _OpenCvClassifier(Classifier):
    """Common to both: one matcher, trained with all rows in blocks.

    OpenCV does not promise that a matcher may be shared between threads (`knnMatch` is not const), so a lock
    admits one at a time.
    """

    def __init__(
        self, models: Sequence[ObjectModel], rule: VotingRule, matcher: cv2.DescriptorMatcher
    ) -> None:
        super().__init__(models, rule)
        self._lock = threading.Lock()
        self._matcher = matcher
        if len(self._table.descriptors):
            rows = self._table.descriptors
            matcher.add([rows[start : start + _BLOCK_ROWS] for start in range(0, len(rows), _BLOCK_ROWS)])
            matcher.train()

    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        wanted = min(NEIGHBOURS, len(self._table.descriptors))  # FLANN refuses more than there are
        with self._lock:
            found = self._matcher.knnMatch(descriptors, wanted)
        distances = np.full((len(descriptors), NEIGHBOURS), np.iinfo(np.int32).max, np.int32)
        rows = np.full((len(descriptors), NEIGHBOURS), -1, np.int64)
        for index, matches in enumerate(found):
            for rank, match in enumerate(matches):
                distances[index, rank] = int(match.distance)
                rows[index, rank] = match.imgIdx * _BLOCK_ROWS + match.trainIdx
        return distances, rows


class FlannLshClassifier(_OpenCvClassifier):
    """FLANN's LSH with the dissertation's parameters: 12 tables, key size 16, multi-probe level 1.

    FLANN draws the tables' bits from a generator that OpenCV shares in the process: one index always answers
    alike, two of the same models may differ.
    """

    name = "flann-lsh"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        parameters: dict[str, bool | int | float | str] = {
            "algorithm": _FLANN_INDEX_LSH,
            "table_number": _TABLES,
            "key_size": _KEY_BITS,
            "multi_probe_level": _PROBE_LEVEL,
        }
        super().__init__(models, rule, cv2.FlannBasedMatcher(parameters, {}))


class BruteForceClassifier(_OpenCvClassifier):
    """OpenCV's `BFMatcher`: exact, and the dissertation's own brute-force baseline."""

    name = "brute-force"

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        super().__init__(models, rule, cv2.BFMatcher(cv2.NORM_HAMMING))
