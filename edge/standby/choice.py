"""Decisions about a standby: which models it holds, how fast they are fetched, and when an index is built.

The functions are pure: no clock, thread or socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nearsight.edge.request_distribution import Ranking

FAVOUR = 2.0
"""A held object is replaced only by one with more than this many times its requests: a change is a fetch."""
_GROWTH = 2.0
"""While models arrive, an index is built when their number has grown by this factor."""

_MAX_BATCH = 8
_SHORT_S, _LONG_S = 0.06, 0.12
"""If a fetch took less than the first, the next batch is larger; if more than the second, smaller [s]."""
_MIN_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class StandbyChoice:
    """Objects that a standby should hold."""

    keep: frozenset[str]
    """Objects that are held already."""
    missing: tuple[str, ...]
    """Objects to fetch, the most popular first."""


def choose(
    ranking: Ranking, held_bytes: Mapping[str, int], budget_bytes: float, typical_bytes: float
) -> StandbyChoice:
    """Choose the most popular objects, then the rest of the catalogue, within the budget.

    Parameters
    ----------
    ranking : Ranking
        Estimated request distribution.
    held_bytes : mapping of str to int
        Size of each held object, with its part of the index [bytes].
    budget_bytes : float
        Budget of all objects.
    typical_bytes : float
        Assumed size of an object that is not held.
    """
    names = ranking.top(len(ranking))
    favour = np.array([FAVOUR if name in held_bytes else 1.0 for name in names])
    order = np.argsort(-ranking.probabilities * favour, kind="stable")
    keep, missing, left = set(), [], budget_bytes
    for place in order.tolist():
        name = names[place]
        size_bytes = held_bytes.get(name, typical_bytes)
        if size_bytes > left:
            continue
        left -= size_bytes
        if name in held_bytes:
            keep.add(name)
        else:
            missing.append(name)
    return StandbyChoice(frozenset(keep), tuple(missing))


@dataclass(slots=True)
class FetchPace:
    """Batch size and pause of fetches; a third of the time is pause.

    A batch is small, so that it is fetched while a photo is sent and recognised, and the link is then free.
    """

    batch: int = field(default=1, init=False)
    """Number of models in the next batch."""

    def fetched(self, took_s: float) -> float:
        """Record the time of a batch [s]; return the pause before the next one [s]."""
        if took_s < _SHORT_S:
            self.batch = min(_MAX_BATCH, 2 * self.batch)
        elif took_s > _LONG_S:
            self.batch = max(1, self.batch // 2)
        return max(_MIN_PAUSE_S, took_s / 2)


def worth_building(held: int, indexed: int, *, changed: bool, more_come: bool) -> bool:
    """Whether to build an index of ``held`` models now, if the present index has ``indexed`` objects.

    Parameters
    ----------
    held, indexed : int
        Number of models, and of objects in the index.
    changed : bool
        Whether they differ.
    more_come : bool
        Whether models are being fetched; then a build for each of them would be too expensive.
    """
    return changed and (not more_come or held >= _GROWTH * indexed + 1)
