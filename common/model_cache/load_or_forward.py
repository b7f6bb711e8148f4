"""A request whose model is absent: load it and answer here, or let the next tier answer meanwhile.

Whichever is expected sooner. A forwarded request still starts the load: the next one finds the model. Neither
CremeBrulee nor mCache has a next tier.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known when a request comes."""

    loads_ms: float
    """Until the loader is free."""
    load_left_ms: float
    """Of the load that this request would wait for."""
    forward_ms: float
    """Until an answer of the next tier; ``inf`` if there is none."""


def forward_is_sooner(decision: Load | Wait, costs: ModelCosts, now: Circumstances) -> bool:
    """Whether the next tier is expected to answer sooner. If both take as long: here, without the network.

    Parameters
    ----------
    decision : Load or Wait
        Of the model cache about this request.
    costs : ModelCosts
        Of its model.
    now : Circumstances
    """
    until_resident_ms = now.load_left_ms if isinstance(decision, Wait) else now.loads_ms + costs.load_ms
    return now.forward_ms < until_resident_ms + costs.execution_ms
