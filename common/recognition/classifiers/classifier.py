"""The classifier: an immutable index over the descriptors of k object models, and the vote that it takes.

Backends differ only in how they find the nearest descriptors. The rest is here: from neighbours to votes,
from votes to candidate views.

A query descriptor votes for the object of its nearest neighbour if that is clearly nearer than the nearest
neighbour *of another object* (ratio test). Views of one object never compete with each other, nor do twins:
else one picture under two ids would get no vote. Where nobody else is found, a rival at the usual distance of
unrelated descriptors is assumed: so the test stays sane with a single object, and with hash tables that
return fewer neighbours than asked for.

The vote is a sequential decision. Descriptors come strongest first, in chunks; after each chunk it stops if

1. the leader has at least ``decisive_votes`` (enough to verify by), and
2. leader - runner-up >= ``decisive_lead`` * sqrt(leader + runner-up): were both equally likely, each vote
   would be a coin toss, and a lead of 3 standard deviations would come up once in 700 looks.

Whoever leads so clearly is verified; if that fails (a logo that many covers share), the vote goes on.
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

Neighbours = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Hamming distances (N, K), not decreasing, and rows of the table (N, K), -1 where fewer were found."""

NEIGHBOURS = 4
"""Neighbours asked for per descriptor: enough to see past three views of the best object to its rival."""

TABLE_BYTES = DESCRIPTOR_BYTES + 3 * 4
"""Of `DescriptorTable` for each descriptor."""

_STANDS_OUT = 2.0
"""Standard deviations (of a Poisson count) above the median of the other objects."""
_MIN_OTHERS = 3
"""Fewer tell nothing about what is usual: several of them may be in the photo."""
_LEAST_ALIKE = 6
_MANY_DESCRIPTORS = 600_000
"""Descriptors with a near neighbour in a look-alike, and the size of the index that says what is near: 629
pictures, where they were 7 and more in 15 pairs. A small index would call nearly all near."""


@dataclass(frozen=True, slots=True)
class VotingRule:
    """How neighbours become votes, and when counting may stop."""

    ratio: float = 0.85
    """A vote counts if its distance is below ``ratio`` times that to another object's best descriptor."""
    max_distance_bits: int = 80
    """A farther neighbour says nothing; unrelated ORB descriptors differ in about 128 of 256 bits."""
    voting_features: int = 2000
    """Strongest descriptors that vote."""
    chunk: int = 100
    """Descriptors looked up at a time."""
    early_stop: bool = True
    """Whether counting may stop before all have voted."""
    decisive_votes: int = 10
    decisive_lead: float = 3.0
    """See the module's rule."""
    min_votes: int = 3
    """Views with fewer votes are no candidates."""
    candidates: int = 6
    """Views returned at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A view that the query may show, with the correspondences that say so."""

    object_id: str
    view: int
    """Index into the views of the object's model."""
    votes: int
    """Number of correspondences."""
    query_indices: NDArray[np.int32]
    view_indices: NDArray[np.int32]
    """(votes,) int32: which query feature corresponds to which feature of the view, the most
    distinctive first."""


class Classifier(ABC):
    """An immutable index over object models. Safe to use from several threads at once."""

    name: ClassVar[str]
    """Name of the backend in the registry."""
    search_bytes: ClassVar[int] = 0
    """Memory for each descriptor beside the table: calibrated, see decision 050."""

    def __init__(self, models: Sequence[ObjectModel], rule: VotingRule) -> None:
        self._table = DescriptorTable.of(models)
        self._rule = rule

    @property
    def size_bytes(self) -> int:
        """Memory of the index: the table as it is, the rest as calibrated."""
        return len(self._table.descriptors) * (TABLE_BYTES + self.search_bytes)

    @abstractmethod
    def _neighbours(self, descriptors: NDArray[np.uint8]) -> Neighbours:
        """Nearest rows of the table for descriptors (N, 32), nearest first, at most `NEIGHBOURS` each.

        Called only if the table has rows. May return fewer, filled up with row -1.
        """

    def __len__(self) -> int:
        """Objects in the index."""
        return len(self._table.object_ids)

    def most_alike(self, features: Features, most: int, beside: str) -> tuple[tuple[str, int], ...]:
        """Views (object id, index) of other objects with a near neighbour for most descriptors.

        For whoever looks for look-alikes: of several objects with one pattern none passes the ratio test.
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
        counts[[table.object_ids[index] == beside for index, _ in table.views]] = 0
        ranked = np.argsort(-counts, kind="stable")[:most]
        alike = (table.views[view] for view in ranked if counts[view] >= _LEAST_ALIKE)
        return tuple((table.object_ids[index], view) for index, view in alike)

    def rounds(self, features: Features) -> Iterator[tuple[Candidate, ...]]:
        """Candidate views, most votes first, each time that they are worth verifying.

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


@dataclass(frozen=True, slots=True, eq=False)
class DescriptorTable:
    """All descriptors of all views in one array; leads back from a row to object, view and keypoint."""

    object_ids: tuple[str, ...]
    """Length O."""
    views: tuple[tuple[int, int], ...]
    """Length V: object index and index of the view within its object."""
    group_of_object: NDArray[np.int32]
    """(O,) int32: index of an object; twins have the same, as they compete as one."""
    descriptors: NDArray[np.uint8]
    """(M, 32) uint8."""
    group_of_row: NDArray[np.int32]
    view_of_row: NDArray[np.int32]
    index_in_view: NDArray[np.int32]
    """(M,) int32: group of the row's object, index into ``views``, and of the feature within its
    view."""
    unrelated_bits: float
    """`unrelated_distance_bits` of M."""

    @classmethod
    def of(cls, models: Sequence[ObjectModel]) -> DescriptorTable:
        """The table of these models, in their order."""
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
    """For each model the index of one of them, the same for twins, and for twins of twins."""
    index_of = {model.object_id: index for index, model in enumerate(models)}
    groups = np.arange(len(models), dtype=np.int32)
    for index, model in enumerate(models):
        for rival, inliers in model.rivals.items():
            if inliers == TWIN and rival in index_of:
                groups[groups == groups[index_of[rival]]] = groups[index]
    return groups


class Vote:
    """The votes of one query, as far as they have been counted."""

    def __init__(self, table: DescriptorTable, rule: VotingRule) -> None:
        self._table = table
        self._rule = rule
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
        # K neighbours of one object: others are at least as far as the last of them.
        unseen = np.maximum(np.where(rows[:, -1] >= 0, distances[:, -1], 0), self._table.unrelated_bits)
        rival = np.where(other.any(axis=1), found, unseen).astype(np.float64)
        best = distances[:, 0]
        passed = (
            (rows[:, 0] >= 0) & (best <= self._rule.max_distance_bits) & (best < self._rule.ratio * rival)
        )
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
        lead = self._rule.decisive_lead * (most + next_most) ** 0.5
        return most >= self._rule.decisive_votes and most - next_most >= lead

    def candidates(self) -> tuple[Candidate, ...]:
        """Views with the most votes first; each feature of a view is counted once."""
        queries, rows = np.concatenate(self._queries), np.concatenate(self._rows)
        order = np.argsort(np.concatenate(self._ratios), kind="stable")
        _, first = np.unique(rows[order], return_index=True)
        order = order[np.sort(first)]
        queries, rows = queries[order], rows[order]
        views, counts = np.unique(self._table.view_of_row[rows], return_counts=True)
        ranked = np.argsort(-counts, kind="stable")[: self._rule.candidates]
        votes: list[int] = np.sort(self._votes).tolist()
        chosen = []
        for index in ranked:
            object_index, view_in_object = self._table.views[views[index]]
            if counts[index] < self._rule.min_votes or not self._stands_out(object_index, votes):
                continue
            mine = self._table.view_of_row[rows] == views[index]
            candidate = Candidate(
                object_id=self._table.object_ids[object_index],
                view=view_in_object,
                votes=int(counts[index]),
                query_indices=queries[mine].astype(np.int32),
                view_indices=self._table.index_in_view[rows[mine]],
            )
            chosen.append(candidate)
        return tuple(chosen)

    def _stands_out(self, object_index: int, all_votes: list[int]) -> bool:
        """Whether an object has more votes than a photo of something else gives to everybody.

        In a small catalogue clutter has few objects to vote for, and each gets several votes. ``all_votes``
        are those of all objects, sorted.
        """
        own = int(self._votes[self._table.group_of_object[object_index]])
        if len(all_votes) - 1 < _MIN_OTHERS:
            return True
        others = all_votes.copy()
        others.remove(own)
        usual = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2  # their median
        return own >= usual + _STANDS_OUT * math.sqrt(usual)


def unrelated_distance_bits(descriptors: int) -> float:
    """Usual distance of a query descriptor to the nearest of so many unrelated ones.

    Medians measured with ORB on photos of objects that are not in the catalogue (Stanford Mobile Visual
    Search): 70, 60, 55, 49 and 47 bits with 1, 5, 20, 126 and 504 thousand descriptors.
    """
    return float(np.clip(70 - 3 * np.log2(max(descriptors, 1) / 1000), 46, 70))
