"""A request whose model is absent: load it and answer here, or let the next tier answer meanwhile.

Whichever is expected sooner. A forwarded request still starts the load: the next one finds the model. Neither
CremeBrulee nor mCache has a next tier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nearsight.common.model_cache.model_cache import Decision, Refuse, Run, Wait
from nearsight.common.model_cache.policy import ModelCosts


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known when a request comes."""

    executions_ms: float = 0.0
    """Until the processor is free for this request, once its model is resident."""
    loads_ms: float = 0.0
    """Until the loader is free."""
    load_left_ms: float = 0.0
    """Of the load that this request would wait for."""
    forward_ms: float = math.inf
    """Until an answer of the next tier; ``inf`` if there is none."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What both ways are expected to take; ``inf`` where a way is closed."""

    here_ms: float
    forward_ms: float

    @property
    def forward(self) -> bool:
        """Whether the next tier is expected sooner; of equal times here, which costs the network nothing."""
        return self.forward_ms < self.here_ms

    @property
    def possible(self) -> bool:
        """Whether anyone can answer."""
        return min(self.here_ms, self.forward_ms) < math.inf


def load_or_forward(decision: Decision, costs: ModelCosts, now: Circumstances) -> Expectation:
    """Compare both ways for one request.

    Parameters
    ----------
    decision : Decision
        Of the model cache about this request.
    costs : ModelCosts
        Of its model.
    now : Circumstances
    """
    if isinstance(decision, Refuse):
        return Expectation(math.inf, now.forward_ms)
    if isinstance(decision, Run):
        until_resident_ms = 0.0
    elif isinstance(decision, Wait):
        until_resident_ms = now.load_left_ms
    else:
        until_resident_ms = now.loads_ms + costs.load_ms
    return Expectation(until_resident_ms + now.executions_ms + costs.execution_ms, now.forward_ms)
