"""BeladyMIN: evicts the model whose next request is farthest in the future. Clairvoyant, for experiments."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class BeladyMin(ScoringPolicy):
    """Scores are the negative numbers of requests until the next request of each model.

    Parameters
    ----------
    requests : sequence of str
        Models in the order of their future requests.
    """

    columns: ClassVar[Mapping[str, float]] = MappingProxyType({"next_place": math.inf})

    def __init__(self, requests: Sequence[str]) -> None:
        super().__init__()
        self._places: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, model in enumerate(requests):
            self._places[model].append(place)
        self._place = -1

    def requested(self, model: str, now_s: float) -> None:
        """Advance by one request."""
        del now_s
        self._place += 1
        self._look_ahead(model)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Record the costs of a model, which may be loaded before its first request."""
        super().loaded(model, costs, now_s)
        self._look_ahead(model)

    def scores(self, now_s: float) -> Column:
        """Higher for models that are requested sooner."""
        del now_s
        return -self.requests_until()

    def requests_until(self) -> Column:
        """B of CremeBrulee: number of requests until each model's next one; ``inf`` if there is none."""
        return self._numbers["next_place"] - self._place

    def _look_ahead(self, model: str) -> None:
        places = self._places[model]
        while places and places[0] <= self._place:
            places.popleft()
        row = self._row(model)  # may replace the column arrays
        self._numbers["next_place"][row] = places[0] if places else math.inf
