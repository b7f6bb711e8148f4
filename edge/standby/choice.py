"""Which models belong into a standby, how fast they are fetched, and when an index of them is worth building.

Pure: no clock, thread or socket in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nearsight.edge.request_distribution import Ranking

FAVOUR = 2.0
"""What is here makes room only for what is asked for so many times as often: a change is a model to fetch."""
_GROWTH = 2.0
"""While models come, an index is worth building when there are so many times more of them."""

_MOST_BATCH = 8
_SHORT_S, _LONG_S = 0.06, 0.12
"""A request for models that took less asks for more the next time; one that took longer for fewer."""
_LEAST_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class StandbyChoice:
    """What belongs into a standby."""

    keep: frozenset[str]
    """Of what is here."""
    missing: tuple[str, ...]
    """What is not here, the most wanted first."""


def choose(
    ranking: Ranking, held_bytes: Mapping[str, int], budget_bytes: float, typical_bytes: float
) -> StandbyChoice:
    """The objects that are asked for most, then the rest of the catalogue, as far as they fit.

    Parameters
    ----------
    ranking : Ranking
        The estimated request distribution.
    held_bytes : mapping of str to int
        Bytes of each object that is here, with its part of the index.
    budget_bytes : float
        For all.
    typical_bytes : float
        Of an object that is not here.
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
    """How many models are asked for at once, and the pause: a third of the time nothing is fetched.

    A few models travel while a photo is on its way and recognised: its answer then finds the link free.
    """

    batch: int = field(default=1, init=False)
    """Models to ask for next."""

    def fetched(self, took_s: float) -> float:
        """A batch came after this time; returns the seconds until the next one may be asked for."""
        if took_s < _SHORT_S:
            self.batch = min(_MOST_BATCH, 2 * self.batch)
        elif took_s > _LONG_S:
            self.batch = max(1, self.batch // 2)
        return max(_LEAST_PAUSE_S, took_s / 2)


def worth_building(held: int, indexed: int, *, changed: bool, more_come: bool) -> bool:
    """Whether to build an index of ``held`` models now, where there is one of ``indexed``.

    Parameters
    ----------
    held, indexed : int
        Models here, and objects in the index.
    changed : bool
        Whether the two differ at all.
    more_come : bool
        Whether further models are on their way: then a build for each of them would be too many.
    """
    return changed and (not more_come or held >= _GROWTH * indexed + 1)
