"""A request whose model is absent: load it and answer here, or let the next tier or another model answer.

Whichever is expected soonest. Also then the load is started: the next request finds the model. A smaller
model that stands in loses accuracy, for which there is a budget. Neither CremeBrulee nor mCache has a next
tier or stand-ins.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto

from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts

_KEPT_REQUESTS = 100
"""Requests whose share of the accuracy budget is kept for later ones."""

_ROUNDING = 1e-9


class Answerer(Enum):
    """Who answers a request whose model is absent."""

    HERE = auto()
    """This tier with the model itself, as soon as it is loaded."""
    NEXT_TIER = auto()
    STAND_IN = auto()
    """This tier, with another model."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known when a request comes."""

    loads_ms: float
    """Until the loader is free."""
    load_left_ms: float
    """Of the load that this request would wait for."""
    forward_ms: float
    """Until an answer of the next tier; ``inf`` if there is none."""
    stand_in_ms: float = math.inf
    """Until an answer of a model that may stand in; ``inf`` if there is none."""


def soonest(decision: Load | Wait, costs: ModelCosts | None, now: Circumstances) -> Answerer:
    """Who is expected to answer first. If several take as long: the model itself, then the next tier.

    Parameters
    ----------
    decision : Load or Wait
        Of the model cache about this request.
    costs : ModelCosts, optional
        Of its model; None: it is being measured, which takes longer than to ask.
    now : Circumstances
    """
    here_ms = math.inf
    if costs is not None:
        until_resident_ms = now.load_left_ms if isinstance(decision, Wait) else now.loads_ms + costs.load_ms
        here_ms = until_resident_ms + costs.execution_ms
    if now.stand_in_ms < min(here_ms, now.forward_ms):
        return Answerer.STAND_IN
    return Answerer.NEXT_TIER if now.forward_ms < here_ms else Answerer.HERE


@dataclass(slots=True)
class _Account:
    requests: int = 0
    stood_in: int = 0
    lost: float = 0.0
    left: float = 0.0


@dataclass(slots=True)
class AccuracyBudget:
    """Accuracy that the answers for a model may lose on average.

    Each request earns the budget, and the answer of a stand-in costs what that is less accurate. So the mean
    loss of all requests so far never exceeds the budget. What 100 requests earn is kept, and no more.
    """

    per_request: float
    """As a share of 1; 0: nothing may stand in."""
    _accounts: defaultdict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))

    def requested(self, model: str) -> None:
        """A request for a model."""
        account = self._accounts[model]
        account.requests += 1
        account.left = min(account.left + self.per_request, _KEPT_REQUESTS * self.per_request)

    def allows(self, model: str, loss: float) -> bool:
        """Whether the answer to this request may lose so much."""
        return self.per_request > 0 and loss <= self._accounts[model].left + _ROUNDING

    def stood_in(self, model: str, loss: float) -> None:
        """Another model answered."""
        account = self._accounts[model]
        account.stood_in += 1
        account.lost += loss
        account.left -= loss

    def why(self, model: str) -> str:
        """What was lost, for a person; empty if nothing stood in."""
        account = self._accounts.get(model, _Account())
        if not account.stood_in:
            return ""
        return (
            f"; others stood in for it in {account.stood_in} of {account.requests} requests, which lost "
            f"{account.lost / account.requests:.4f} of accuracy on average (at most {self.per_request:g})"
        )
