"""What clairvoyant policies know: the requests to come. For experiments only."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Self

from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class ClairvoyantPolicy(ScoringPolicy):
    """A policy that knows when each model will be requested next.

    Parameters
    ----------
    requests : sequence of str
        Models in the order in which they will be requested.
    """

    clairvoyant: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, float]] = MappingProxyType({"next_place": math.inf})

    def __init__(self, requests: Sequence[str]) -> None:
        super().__init__()
        self._places: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, model in enumerate(requests):
            self._places[model].append(place)
        self._place = -1

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Read the future."""
        return cls(knowledge.requests)

    def requested(self, model: str, now_s: float) -> None:
        """The future is one request nearer."""
        del now_s
        self._place += 1
        self._look_ahead(model)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """A model may come before its first request."""
        super().loaded(model, costs, now_s)
        self._look_ahead(model)

    @abstractmethod
    def scores(self, now_s: float) -> Column:
        """By `requests_until`."""

    def requests_until(self) -> Column:
        """B of CremeBrulee: requests until the next one for each model; ``inf`` if there is none."""
        return self._numbers["next_place"] - self._place

    def _look_ahead(self, model: str) -> None:
        places = self._places[model]
        while places and places[0] <= self._place:
            places.popleft()
        row = self._row(model)  # may replace the column
        self._numbers["next_place"][row] = places[0] if places else math.inf
