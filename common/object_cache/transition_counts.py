"""The counts of a Markov model: what followed which history, sparse, decaying, and bounded in number."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nearsight.common.object_cache.transition_row import TransitionRow

Transition = tuple[tuple[int, ...], int]
"""A history and what followed it, as slots; the history is empty for popularity."""

NEGLIGIBLE = 1e-6
"""A count below this is as good as none."""

_RESCALE_AT_HALF_LIVES = 64.0


class TransitionCounts:
    """Weights of transitions, in units of one seen at an origin of time: then decay touches no count.

    Parameters
    ----------
    half_life_s : float
        Seconds in which a count loses half of its weight.
    rows_max : int
        Histories with counts; the one unused for longest makes room.

    Notes
    -----
    Methods that forget counts return which, for a store to forget them as well.
    """

    def __init__(self, half_life_s: float, rows_max: int) -> None:
        self._half_life_s = half_life_s
        self._rows_max = rows_max
        self._origin_s = 0.0
        self._popularity = np.zeros(0)
        self._rows: OrderedDict[tuple[int, ...], TransitionRow] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    @property
    def popularity(self) -> NDArray[np.float64]:
        """Weight of each object whatever came before it: (S,) float64."""
        return self._popularity

    def row(self, history: tuple[int, ...]) -> TransitionRow | None:
        """What followed a history that is not empty; None if nothing ever did."""
        return self._rows.get(history)

    def weight_of(self, transition: Transition) -> float:
        """The weight of one transition."""
        history, slot = transition
        if not history:
            return float(self._popularity[slot])
        row = self._rows.get(history)
        return row.weight_of(slot) if row is not None else 0.0

    def transitions(self) -> Iterator[tuple[Transition, float]]:
        """All that have a weight, and their weights."""
        for slot in np.flatnonzero(self._popularity).tolist():
            yield ((), slot), float(self._popularity[slot])
        for history, row in self._rows.items():
            for slot, weight in zip(row.slots.tolist(), row.weights.tolist(), strict=True):
                yield (history, slot), weight

    def resize(self, slots: int) -> None:
        """Make room for slots below this number."""
        more = max(0, slots - len(self._popularity))
        self._popularity = np.concatenate([self._popularity, np.zeros(more)])

    def add(self, transition: Transition, weight: float) -> list[Transition]:
        """Count a transition; returns those that were forgotten to make room."""
        history, slot = transition
        if not history:
            self._popularity[slot] += weight
            return []
        forgotten: list[Transition] = []
        row = self._rows.get(history)
        if row is None:
            row = self._rows[history] = TransitionRow()
            if len(self._rows) > self._rows_max:
                old, old_row = self._rows.popitem(last=False)
                forgotten = [(old, followed) for followed in old_row.slots.tolist()]
        else:
            self._rows.move_to_end(history)
        row.add(slot, weight)
        return forgotten

    def remove(self, gone: Sequence[int], present: NDArray[np.bool_]) -> None:
        """Slots stand for nothing any more; ``present``, (S,) bool, tells which still do."""
        self._popularity[list(gone)] = 0.0
        left = frozenset(gone)
        for history in [history for history in self._rows if not left.isdisjoint(history)]:
            del self._rows[history]
        for row in self._rows.values():
            row.keep(present[row.slots])
        self._drop_empty_rows()

    def weight_at(self, now_s: float) -> tuple[float, list[Transition]]:
        """Weight of a transition seen now, and the transitions that had decayed to nothing and went.

        Every 64 half-lives the counts are brought to a new origin: the weight of now must stay finite.
        """
        if math.isinf(self._half_life_s):
            return 1.0, []
        half_lives = (now_s - self._origin_s) / self._half_life_s
        if half_lives <= _RESCALE_AT_HALF_LIVES:
            return math.exp2(half_lives), []
        self._origin_s = now_s
        return 1.0, self._rescale(math.exp2(-half_lives))

    def _rescale(self, factor: float) -> list[Transition]:
        self._popularity *= factor
        unpopular = (self._popularity > 0) & (self._popularity < NEGLIGIBLE)
        self._popularity[unpopular] = 0.0
        forgotten: list[Transition] = [((), slot) for slot in np.flatnonzero(unpopular).tolist()]
        for history, row in self._rows.items():
            row.scale(factor)
            gone = row.keep(row.weights >= NEGLIGIBLE)
            forgotten.extend((history, slot) for slot in gone.tolist())
        self._drop_empty_rows()
        return forgotten

    def _drop_empty_rows(self) -> None:
        for history in [history for history, row in self._rows.items() if not len(row)]:
            del self._rows[history]
