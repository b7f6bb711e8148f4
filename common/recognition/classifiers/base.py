"""The classifier: an immutable index over the descriptors of k object models.

Backends differ only in how they find the nearest descriptors; what follows from them is `voting`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.table import DescriptorTable
from nearsight.common.recognition.classifiers.voting import Candidate, Neighbours, Vote, VotingRule
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel

__all__ = ["NEIGHBOURS", "Candidate", "Classifier", "Neighbours", "VotingRule"]

NEIGHBOURS = 4
"""Neighbours asked for per descriptor: enough to see past three views of the best object to its rival."""


class Classifier(ABC):
    """An immutable index over object models. Safe to use from several threads at once.

    Attributes
    ----------
    name : str
        Name of the backend in the registry.
    """

    name: ClassVar[str]

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        self._table = DescriptorTable.of(models)
        self._rule = rule

    @abstractmethod
    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        """Nearest rows of the table for descriptors (N, 32), nearest first, at most `NEIGHBOURS` each.

        Called only if the table has rows. May return fewer, filled up with row -1.
        """

    def __len__(self) -> int:
        """Objects in the index."""
        return len(self._table.object_ids)

    def match(self, features: Features) -> tuple[Candidate, ...]:
        """Views with votes, most votes first, as of the first decision."""
        return next(self.rounds(features), ())

    def rounds(self, features: Features) -> Iterator[tuple[Candidate, ...]]:
        """Candidates each time that they are worth verifying.

        Yields when one object's lead is decisive and, if the caller asks on because the verification failed,
        again when twice as many descriptors have voted, and at last when all have.
        """
        count = min(len(features), self._rule.voting_features)
        if not count or not len(self._table.descriptors):
            return
        vote = Vote(self._table, self._rule)
        not_before = 0
        for first in range(0, count, self._rule.chunk):
            counted = min(first + self._rule.chunk, count)
            vote.count(first, self._neighbours(features.descriptors[first:counted]))
            last = counted == count
            if last or (self._rule.early_stop and counted >= not_before and vote.is_decided()):
                yield vote.candidates()
                not_before = 2 * counted
