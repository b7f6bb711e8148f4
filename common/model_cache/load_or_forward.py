"""Decides who answers a request for an absent model: this tier after a load, the next tier, or a stand-in.

The one with the earliest expected answer is chosen. The load is started in any case, so that the next request
finds the model in memory. A smaller model that stands in is less accurate; a budget limits this loss. Neither
CremeBrulee nor mCache has a next tier or stand-ins.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto

_KEPT_REQUESTS = 100
"""Maximum number of requests whose unused share of the accuracy budget is kept."""

_ROUNDING = 1e-9


class Answerer(Enum):
    """Who answers a request whose model is not in memory."""

    HERE = auto()
    """This tier with the requested model, after it is loaded."""
    NEXT_TIER = auto()
    STAND_IN = auto()
    """This tier with another model that is in memory."""


def soonest(here_ms: float, forward_ms: float, stand_in_ms: float) -> Answerer:
    """Who is expected to answer first. Of equal times, the requested model is preferred, then the next tier.

    Parameters
    ----------
    here_ms : float
        Expected time until the requested model answers; ``inf`` if it cannot be loaded now, or is being
        measured, which takes longer than forwarding.
    forward_ms : float
        Expected time until the next tier's answer; ``inf`` if there is no next tier.
    stand_in_ms : float
        Expected time until the answer of a model that may stand in; ``inf`` if there is none.
    """
    if stand_in_ms < min(here_ms, forward_ms):
        return Answerer.STAND_IN
    return Answerer.NEXT_TIER if forward_ms < here_ms else Answerer.HERE


@dataclass(slots=True)
class _Account:
    requests: int = 0
    stood_in: int = 0
    lost: float = 0.0
    left: float = 0.0


@dataclass(slots=True)
class AccuracyBudget:
    """Limits the mean loss of accuracy through stand-ins, per requested model.

    Each request adds the budget to the model's account, and the answer of a stand-in subtracts its loss. The
    mean loss over all requests so far therefore never exceeds the budget. An account holds at most the budget
    of 100 requests.
    """

    per_request: float
    """Mean loss of accuracy allowed per request, in [0, 1]; 0: no model may stand in."""
    _accounts: defaultdict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))

    def requested(self, model: str) -> None:
        """Record a request for a model."""
        account = self._accounts[model]
        account.requests += 1
        account.left = min(account.left + self.per_request, _KEPT_REQUESTS * self.per_request)

    def allows(self, model: str, loss: float) -> bool:
        """Whether the answer to the current request may lose this much accuracy."""
        return self.per_request > 0 and loss <= self._accounts[model].left + _ROUNDING

    def stood_in(self, model: str, loss: float) -> None:
        """Record that another model answered, with this loss."""
        account = self._accounts[model]
        account.stood_in += 1
        account.lost += loss
        account.left -= loss

    def why(self, model: str) -> str:
        """Summary of the losses, for the explanation; empty if no model stood in."""
        account = self._accounts.get(model, _Account())
        if not account.stood_in:
            return ""
        return (
            f"; others stood in for it in {account.stood_in} of {account.requests} requests; mean loss "
            f"{account.lost / account.requests:.4f} of accuracy (limit {self.per_request:g})"
        )
