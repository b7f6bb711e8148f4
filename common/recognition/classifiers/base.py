"""The classifier: votes of the query's descriptors for the objects that they resemble.

An immutable index over the descriptors of k object models. Backends differ only in how they find the nearest
descriptors; the votes are counted here, once: a query descriptor votes for the object of its nearest
neighbour if that is clearly nearer than the nearest neighbour *of another object*. Views of one object
never compete with each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.table import DescriptorTable
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel

Neighbours = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Hamming distances (N, K), not decreasing, and rows of the table (N, K), -1 where fewer were found."""


@dataclass(frozen=True, slots=True)
class VotingRule:
    """How neighbours become votes, and when counting may stop.

    Attributes
    ----------
    ratio : float
        A vote counts if its distance is below ``ratio`` times that to another object's best descriptor.
    max_distance : int
        Bits; unrelated ORB descriptors differ in about 128, so a farther neighbour says nothing.
    candidates : int
        Views returned at most.
    chunk : int
        Query descriptors looked up at a time, strongest first.
    decisive_votes, decisive_lead : int, float
        Counting stops once one object has this many votes and this many times those of the next.
    """

    ratio: float = 0.85
    max_distance: int = 80
    candidates: int = 6
    chunk: int = 100
    decisive_votes: int = 30
    decisive_lead: float = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A view that the query may show, with the correspondences that say so.

    Attributes
    ----------
    object_id : str
    view : int
        Index into the views of the object's model.
    votes : int
        Number of correspondences.
    query_indices, view_indices : ndarray, (votes,) int32
        Which query feature corresponds to which feature of the view.
    """

    object_id: str
    view: int
    votes: int
    query_indices: NDArray[np.int32]
    view_indices: NDArray[np.int32]


class Classifier(ABC):
    """An immutable index over object models. Safe to use from several threads at once."""

    name: ClassVar[str]

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        self._table = DescriptorTable.of(models)
        self._rule = rule

    @abstractmethod
    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        """Nearest rows of the table for descriptors (N, 32); a few per descriptor, nearest first."""

    def __len__(self) -> int:
        """Objects in the index."""
        return len(self._table.object_ids)

    def match(self, features: Features) -> tuple[Candidate, ...]:
        """Views with votes, most votes first.

        Descriptors are looked up strongest first, in chunks; see `VotingRule` for when this stops.
        """
        if not len(self._table.descriptors) or not len(features):
            return ()
        rule = self._rule
        queries: list[NDArray[np.int64]] = []
        rows: list[NDArray[np.int64]] = []
        votes = np.zeros(len(self._table.object_ids), np.int64)
        for start in range(0, len(features), rule.chunk):
            distances, found = self._neighbours(features.descriptors[start : start + rule.chunk])
            voters = self._voters(distances, found)
            queries.append(voters + start)
            rows.append(found[voters, 0])
            votes += np.bincount(self._table.object_of_row[found[voters, 0]], minlength=len(votes))
            if self._decided(votes):
                break
        return self._candidates(np.concatenate(queries), np.concatenate(rows))

    def _voters(self, distances: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of the query descriptors whose nearest neighbour passes the ratio test."""
        objects = np.where(rows >= 0, self._table.object_of_row[rows], -1)
        best = distances[:, 0].astype(np.float64)
        other = (objects != objects[:, :1]) & (rows >= 0)
        # Nobody else among the neighbours found: others are at least as far as the last one.
        last = np.where(rows >= 0, distances, -1).max(axis=1)
        rival = np.where(
            other.any(axis=1), distances[np.arange(len(rows)), other.argmax(axis=1)], np.maximum(last, 128)
        )
        passed = (rows[:, 0] >= 0) & (best <= self._rule.max_distance) & (best < self._rule.ratio * rival)
        return np.flatnonzero(passed)

    def _decided(self, votes: NDArray[np.int64]) -> bool:
        ranked = np.partition(votes, -2)[-2:] if len(votes) > 1 else np.array([0, votes[0]])
        return bool(
            ranked[1] >= self._rule.decisive_votes
            and ranked[1] >= self._rule.decisive_lead * max(ranked[0], 1)
        )

    def _candidates(self, queries: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[Candidate, ...]:
        views, starts, counts = np.unique(
            self._table.view_of_row[rows], return_index=True, return_counts=True
        )
        del starts
        best = np.argsort(-counts, kind="stable")[: self._rule.candidates]
        candidates = []
        for index in best:
            mine = self._table.view_of_row[rows] == views[index]
            object_index, view = self._table.views[views[index]]
            candidates.append(
                Candidate(
                    self._table.object_ids[object_index],
                    view,
                    int(counts[index]),
                    queries[mine].astype(np.int32),
                    self._table.index_in_view[rows[mine]],
                )
            )
        return tuple(candidates)
