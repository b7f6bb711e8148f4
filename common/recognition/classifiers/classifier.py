"""The classifier: an immutable index over the descriptors of k object models, with voting.

Backends differ only in how they find the nearest descriptors. This module implements the rest: from
neighbours to votes, and from votes to candidate views.

A query descriptor votes for the object of its nearest neighbour if that neighbour is clearly nearer than the
nearest neighbour *of another object* (ratio test). Views of one object do not compete with each other, and
neither do twins: otherwise a picture stored under two ids would receive no votes. If no other object is among
the neighbours, the usual distance of unrelated descriptors is used instead. So the test also works with a
single object, and with hash tables that return fewer neighbours than requested.

Voting is a sequential decision. Descriptors are processed in chunks, strongest first. After each chunk,
voting stops if

1. the leader has at least `_DECISIVE_VOTES` (enough for a verification), and
2. leader - runner-up >= `_DECISIVE_LEAD` * sqrt(leader + runner-up): if both were equally likely, each vote
   would be a coin toss, and a lead of 3 standard deviations would occur once in 700 checks.

The leader is then verified. If that fails (for example, because many covers share a logo), voting continues.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.models import DESCRIPTOR_BYTES, TWIN, Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

Neighbours = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Hamming distances (N, K), not decreasing, and rows of the table (N, K), -1 for missing neighbours."""

NEIGHBOURS = 4
"""Neighbours requested per descriptor: the best object may have three views before its first rival."""

TABLE_BYTES = DESCRIPTOR_BYTES + 3 * 4
"""Memory of `DescriptorTable` per descriptor [bytes]."""

MAX_DISTANCE_BITS = 80
"""Maximum distance of a match; unrelated ORB descriptors differ in about 128 of 256 bits."""

_CHUNK = 100
"""Number of descriptors per lookup."""
_DECISIVE_VOTES, _DECISIVE_LEAD = 10, 3.0
"""Conditions for stopping early; see the module's docstring."""
MIN_VOTES = 3
"""Views with fewer votes are not candidates."""
_SIGNIFICANT_DEVIATIONS = 2.0
"""Standard deviations (Poisson) by which a candidate must exceed the median of the other objects."""
_MIN_OTHERS = 3
"""Minimum number of other objects for a useful median; with fewer, several of them may be in the photo."""
_MIN_ALIKE = 6
_MANY_DESCRIPTORS = 600_000
"""Minimum descriptors with a near neighbour in a look-alike, and the index size that defines "near". Measured
among 629 pictures: 7 or more such descriptors in 15 pairs. In a small index, nearly all would be near."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A view that the query may show, with its correspondences."""

    object_id: str
    view: int
    """Index into the views of the object's model."""
    votes: int
    """Number of correspondences."""
    query_indices: NDArray[np.int32]
    view_indices: NDArray[np.int32]
    """(votes,) int32: corresponding features in the query and in the view, most distinctive first."""


class Classifier(ABC):
    """An immutable index over object models. Thread-safe."""

    name: ClassVar[str]
    """Name of the backend in the registry."""
    search_bytes: ClassVar[int] = 0
    """Memory per descriptor in addition to the table [bytes]; calibrated, see decision 050."""

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        self._table = DescriptorTable.of(models)
        self._settings = settings

    @property
    def size_bytes(self) -> int:
        """Memory of the index [bytes]: the actual table, and the calibrated size of the search structure."""
        return len(self._table.descriptors) * (TABLE_BYTES + self.search_bytes)

    @abstractmethod
    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        """Nearest rows of the table for descriptors (N, 32), nearest first, at most `NEIGHBOURS` each.

        Called only if the table has rows. Missing neighbours have row -1.
        """

    def most_alike(self, features: Features, most: int, excluded: str) -> tuple[tuple[str, int], ...]:
        """Views (object id, index) of other objects that have a near neighbour for the most descriptors.

        Used to find look-alikes. The ratio test cannot be used for that, because it rejects a pattern that
        several objects share.

        Parameters
        ----------
        features : Features
            The view whose look-alikes are wanted.
        most : int
            Maximum number of views returned.
        excluded : str
            Id of the object that is left out.
        """
        table = self._table
        if not len(features) or not len(table.descriptors):
            return ()
        distances, rows = self._neighbours(features.descriptors)
        bits = unrelated_distance_bits(max(len(table.descriptors), _MANY_DESCRIPTORS))
        near = (rows >= 0) & (distances <= bits)
        queries, views = np.nonzero(near)[0], table.view_of_row[rows[near]]
        pairs = np.unique(queries * len(table.views) + views)  # a descriptor counts once per view
        counts = np.bincount(pairs % len(table.views), minlength=len(table.views))
        counts[[table.object_ids[index] == excluded for index, _ in table.views]] = 0
        ranked = np.argsort(-counts, kind="stable")[:most]
        alike = (table.views[view] for view in ranked if counts[view] >= _MIN_ALIKE)
        return tuple((table.object_ids[index], view) for index, view in alike)

    def rounds(self, features: Features) -> Iterator[tuple[Candidate, ...]]:
        """Candidate views, most votes first, each time they are worth verifying.

        Yields when the lead of one object is decisive. If the caller continues because the verification
        failed, it yields again when twice as many descriptors have voted, and finally when all have.
        """
        count = min(len(features), self._settings.voting_features)
        if not count or not len(self._table.descriptors):
            return
        vote = Vote(self._table, self._settings)
        not_before = 0
        for first in range(0, count, _CHUNK):
            counted = min(first + _CHUNK, count)
            vote.count(first, self._neighbours(features.descriptors[first:counted]))
            last = counted == count
            if last or (self._settings.early_stop and counted >= not_before and vote.is_decided()):
                yield vote.candidates()
                not_before = 2 * counted


@dataclass(frozen=True, slots=True, eq=False)
class DescriptorTable:
    """All descriptors of all views in one array; maps a row to its object, view and keypoint."""

    object_ids: tuple[str, ...]
    """Ids of the objects, length O."""
    views: tuple[tuple[int, int], ...]
    """Object index and index of the view within its object, length V."""
    group_of_object: NDArray[np.int32]
    """(O,) int32: group of each object; twins share a group and compete as one object."""
    descriptors: NDArray[np.uint8]
    """(M, 32) uint8: descriptors of all views."""
    group_of_row: NDArray[np.int32]
    view_of_row: NDArray[np.int32]
    index_in_view: NDArray[np.int32]
    """(M,) int32, for each row: group of its object, index into ``views``, and index of its feature in the
    view."""
    unrelated_bits: float
    """`unrelated_distance_bits` for M descriptors."""

    @classmethod
    def of(cls, models: Sequence[ObjectModel]) -> DescriptorTable:
        """Build the table of these models, in their order."""
        views = [(index, view) for index, model in enumerate(models) for view in range(len(model.views))]
        blocks = [models[index].views[view].descriptors for index, view in views]
        sizes = np.array([len(block) for block in blocks], np.int64)
        view_of_row = np.repeat(np.arange(len(views), dtype=np.int32), sizes)
        groups = _groups(models)
        group_of_view = groups[[index for index, _ in views]]
        return cls(
            object_ids=tuple(model.object_id for model in models),
            views=tuple(views),
            group_of_object=groups,
            descriptors=np.concatenate([np.empty((0, DESCRIPTOR_BYTES), np.uint8), *blocks]),
            group_of_row=group_of_view[view_of_row],
            view_of_row=view_of_row,
            index_in_view=np.concatenate(
                [np.empty(0, np.int32), *(np.arange(n, dtype=np.int32) for n in sizes)]
            ),
            unrelated_bits=unrelated_distance_bits(len(view_of_row)),
        )


def _groups(models: Sequence[ObjectModel]) -> NDArray[np.int32]:
    """Group (O,) of each model: the index of one of its models; twins, and twins of twins, share a group."""
    index_of = {model.object_id: index for index, model in enumerate(models)}
    groups = np.arange(len(models), dtype=np.int32)
    for index, model in enumerate(models):
        for rival, inliers in model.rivals.items():
            if inliers == TWIN and rival in index_of:
                groups[groups == groups[index_of[rival]]] = groups[index]
    return groups


class Vote:
    """The votes counted so far for one query."""

    def __init__(self, table: DescriptorTable, settings: RecognitionSettings) -> None:
        self._table = table
        self._settings = settings
        self._queries: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._ratios: list[NDArray[np.float64]] = []
        self._votes = np.zeros(len(table.object_ids), np.int64)

    def count(self, first: int, neighbours: Neighbours) -> None:
        """Count the votes of query descriptors ``first``, ``first + 1``, ..."""
        distances, rows = neighbours
        groups = np.where(rows >= 0, self._table.group_of_row[rows], -1)
        other = (groups != groups[:, :1]) & (rows >= 0)
        found = distances[np.arange(len(rows)), other.argmax(axis=1)]
        # If all K neighbours are of one object, other objects are at least as far as the last neighbour.
        unseen = np.maximum(np.where(rows[:, -1] >= 0, distances[:, -1], 0), self._table.unrelated_bits)
        rival = np.where(other.any(axis=1), found, unseen).astype(np.float64)
        best = distances[:, 0]
        passed = (rows[:, 0] >= 0) & (best <= MAX_DISTANCE_BITS) & (best < self._settings.ratio * rival)
        voters = np.flatnonzero(passed)
        self._queries.append(voters + first)
        self._rows.append(rows[voters, 0])
        self._ratios.append(best[voters] / rival[voters])
        self._votes += np.bincount(groups[voters, 0], minlength=len(self._votes))

    def is_decided(self) -> bool:
        """Whether one object's lead is decisive."""
        leader = int(self._votes.argmax())
        most = int(self._votes[leader])
        next_most = int(np.delete(self._votes, leader).max(initial=0))
        lead = _DECISIVE_LEAD * (most + next_most) ** 0.5
        return most >= _DECISIVE_VOTES and most - next_most >= lead

    def candidates(self) -> tuple[Candidate, ...]:
        """Views with enough votes, most votes first; each feature of a view counts once."""
        queries, rows = np.concatenate(self._queries), np.concatenate(self._rows)
        order = np.argsort(np.concatenate(self._ratios), kind="stable")
        _, first = np.unique(rows[order], return_index=True)
        order = order[np.sort(first)]
        queries, rows = queries[order], rows[order]
        views, counts = np.unique(self._table.view_of_row[rows], return_counts=True)
        ranked = np.argsort(-counts, kind="stable")[: self._settings.candidates]
        votes: list[int] = np.sort(self._votes).tolist()
        chosen = []
        for index in ranked:
            object_index, view_in_object = self._table.views[views[index]]
            if counts[index] < MIN_VOTES or not self._is_significant(object_index, votes):
                continue
            of_view = self._table.view_of_row[rows] == views[index]
            candidate = Candidate(
                object_id=self._table.object_ids[object_index],
                view=view_in_object,
                votes=int(counts[index]),
                query_indices=queries[of_view].astype(np.int32),
                view_indices=self._table.index_in_view[rows[of_view]],
            )
            chosen.append(candidate)
        return tuple(chosen)

    def _is_significant(self, object_index: int, all_votes: list[int]) -> bool:
        """Whether an object has more votes than a photo of something else would give it.

        In a small catalogue, clutter has few objects to vote for, so each receives several votes.
        ``all_votes`` are the votes of all objects, sorted.
        """
        own = int(self._votes[self._table.group_of_object[object_index]])
        if len(all_votes) - 1 < _MIN_OTHERS:
            return True
        others = all_votes.copy()
        others.remove(own)
        usual = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2  # median of the others
        return own >= usual + _SIGNIFICANT_DEVIATIONS * math.sqrt(usual)


def unrelated_distance_bits(descriptors: int) -> float:
    """Usual distance of a query descriptor to the nearest of ``descriptors`` unrelated ones [bits].

    Medians measured with ORB on photos of objects that are not in the catalogue (Stanford Mobile Visual
    Search): 70, 60, 55, 49 and 47 bits with 1, 5, 20, 126 and 504 thousand descriptors.
    """
    return float(np.clip(70 - 3 * np.log2(max(descriptors, 1) / 1000), 46, 70))
