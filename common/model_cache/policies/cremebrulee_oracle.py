"""CremeBrulee-oracle: the utility of CremeBrulee with the true next request. For experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

from nearsight.common.model_cache.future import Future
from nearsight.common.model_cache.policy import (
    Knowledge,
    ModelCosts,
    ScoringPolicy,
    Victim,
    largest_that_suffice,
)


class CremeBruleeOracle(ScoringPolicy):
    """Scores are utilities [ms per byte and request], equation 1."""

    name: ClassVar[str] = "cremebrulee-oracle"
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
        """Equation 1 with the true B."""
        del now_s
        until = self._future.requests_until
        return [costs.load_ms / costs.size_bytes / until(model) for model, costs in evictable.items()]

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """As `CremeBrulee` chooses them."""
        chosen = super().victims(evictable, needed_bytes, now_s)
        return largest_that_suffice(chosen, evictable, needed_bytes)
