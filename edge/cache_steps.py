"""From a decision to a snapshot: what to fetch now, and whether what is here is worth building.

Models arrive later than they are wanted, one after the other. So there are two judgements by the same rule:
is the wanted cache worth its models, and is the part of it that is here worth a snapshot already. The daemon
and the simulation of a crowd take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearsight.edge.cache_change import CacheState
from nearsight.edge.cache_size import CacheSizeDecision
from nearsight.edge.optimizer import Optimizer, Situation


@dataclass(frozen=True, slots=True)
class CacheStep:
    """What follows from one look at the situation.

    Attributes
    ----------
    decision : CacheSizeDecision
        What belongs into the cache.
    wanted : tuple of str or None
        The new aim: keep the models of these objects, fetch what is not here. None: the aim stays.
    build : frozenset of str or None
        Build a snapshot of these objects, whose models are here. None: the snapshot stays.
    shrinks : bool
        Whether the cache was larger than the load allows.
    why : str
        Why to build, for a person.
    """

    decision: CacheSizeDecision
    wanted: tuple[str, ...] | None
    build: frozenset[str] | None
    shrinks: bool
    why: str


class CacheSteps:
    """Remembers the aim from one step to the next. Not thread-safe.

    Parameters
    ----------
    optimizer : Optimizer
        Decides and judges.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._aim: frozenset[str] = frozenset()

    def next(
        self,
        situation: Situation,
        k_max: int,
        state_of: Callable[[frozenset[str]], CacheState],
        held: Callable[[str], bool],
    ) -> CacheStep:
        """Decide, and say what to do.

        Parameters
        ----------
        situation : Situation
            What the decision rests on.
        k_max : int
            Most objects that the settings and the load allow.
        state_of : callable
            The cache as it is, seen with what is wanted.
        held : callable
            Whether the model of an object is here.
        """
        decision = self._optimizer.decide(situation, k_max)
        wanted = frozenset(decision.object_ids)
        state = state_of(wanted)
        shrinks = len(state.cached) > k_max
        aims = shrinks or self._optimizer.judge(state, wanted, situation).worthwhile
        if aims:
            self._aim = wanted
        available = frozenset(name for name in self._aim if held(name))
        change = self._optimizer.judge(state, available, situation)
        why = f"more than {k_max} objects are too slow for so many requests" if shrinks else change.why
        build = available if shrinks or change.worthwhile else None
        return CacheStep(decision, decision.object_ids if aims else None, build, shrinks, why)
