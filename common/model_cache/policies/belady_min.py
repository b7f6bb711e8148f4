"""BeladyMIN: the model whose next request is the farthest goes first. Knows the future, for experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

from nearsight.common.model_cache.future import Future
from nearsight.common.model_cache.policy import Knowledge, ModelCosts, ScoringPolicy


class BeladyMin(ScoringPolicy):
    """Scores are the negative numbers of requests until the next one."""

    name: ClassVar[str] = "belady-min"
    clairvoyant: ClassVar[bool] = True

    def __init__(self, future: Future) -> None:
        self._future = future

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Read the future."""
        return cls(Future(knowledge.requests))

    def requested(self, model: str, now_s: float) -> None:
        """The future is one request nearer."""
        del now_s
        self._future.requested(model)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """The future does not depend on what is resident."""

    def evicted(self, model: str, now_s: float) -> None:
        """The future does not depend on what is resident."""

    def scores(self, evictable: Mapping[str, ModelCosts], now_s: float) -> Iterable[float]:
        """The nearer, the higher."""
        del now_s
        return [-self._future.requests_until(model) for model in evictable]
