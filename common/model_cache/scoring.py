"""Base class of policies that score all resident models at each eviction, with per-model values in arrays.

Scores change with time, and so does their order. CremeBrulee (V-A) claims a constant order; but for penalty 1
in 2 requests and 3 in 5 the order changes after one request. Scores are therefore computed at each eviction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim, until_enough

_FIRST_ROWS = 64

Column = NDArray[np.float64]
"""(R,): one value per model, with spare rows for new models."""


class ScoringPolicy(Policy):
    """Evicts the lowest scores until enough bytes are free; of equal ones the model that was seen first."""

    columns: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Names and initial values of additional columns. They are kept after evictions."""
    only_largest: ClassVar[bool] = False
    """Whether of the lowest scores only the largest models that suffice are evicted; see `victims`."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._resident = np.zeros(_FIRST_ROWS, dtype=bool)
        self._residents = 0
        self._numbers = {
            name: np.full(_FIRST_ROWS, beginning)
            for name, beginning in {"size_bytes": 1.0, "load_ms": 0.0, **self.columns}.items()
        }

    @abstractmethod
    def scores(self, now_s: float) -> Column:
        """Scores of all models, resident or not; less than ``inf``."""

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Record the model's costs."""
        del now_s
        row = self._row(model)
        self._residents += 1
        self._resident[row] = True
        self._numbers["size_bytes"][row] = costs.size_bytes
        self._numbers["load_ms"][row] = costs.load_ms

    def evicted(self, model: str, now_s: float) -> None:
        """Mark the model as not resident; its values are kept."""
        del now_s
        self._resident[self._rows[model]] = False
        self._residents -= 1

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Models in ascending order of scores, until their sizes reach the needed bytes.

        With `only_largest`, of these the largest that suffice (CremeBrulee, section V-B).
        """
        chosen = until_enough(self._lowest(evictable, now_s), evictable, needed_bytes)
        if not self.only_largest:
            return chosen
        chosen.sort(key=lambda victim: -evictable[victim.model].size_bytes)
        return until_enough(chosen, evictable, needed_bytes)

    def density(self) -> Column:
        """Penalty of a reload per byte [ms]."""
        density: Column = self._numbers["load_ms"] / self._numbers["size_bytes"]
        return density

    def _lowest(self, evictable: Evictable, now_s: float) -> Iterator[Victim]:
        """The evictable models in ascending order of scores; the order is computed as far as it is needed."""
        scores = np.where(self._evictable_rows(evictable), self.scores(now_s), np.inf)
        for _ in evictable:
            row = int(scores.argmin())
            yield Victim(self._names[row], float(scores[row]))
            scores[row] = np.inf

    def _row(self, model: str) -> int:
        """Row of the model in every column; a new model gets the next row."""
        row = self._rows.get(model)
        if row is None:
            row = self._rows[model] = len(self._names)
            self._names.append(model)
            if row == len(self._resident):
                self._resident = np.concatenate([self._resident, np.zeros(row, dtype=bool)])
                beginnings = {"size_bytes": 1.0, "load_ms": 0.0, **self.columns}
                for name, column in self._numbers.items():
                    self._numbers[name] = np.concatenate([column, np.full(row, beginnings[name])])
        return row

    def _evictable_rows(self, evictable: Evictable) -> NDArray[np.bool_]:
        """(R,): rows of the evictable models. Mostly no model executes or is pinned, so all residents are."""
        if len(evictable) == self._residents:
            return self._resident
        rows = np.zeros(len(self._resident), dtype=bool)
        rows[[self._rows[model] for model in evictable]] = True
        return rows
