"""Stores which models are resident, and decides about each request: run, wait, load or refuse.

There is one budget in bytes. The cache only decides; its caller loads, unloads and executes models, and
reports the results. Each method that may need memory returns the models to unload. A model leaves the cache,
and its bytes are free, as soon as it is returned as a victim. The caller must unload it before it loads
anything. Only one model is loaded at a time, so that no model is evicted before the load that needs its
memory begins.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.policy import ModelCosts, Policy, Victim

_LOG_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Run:
    """Execute the request: its model is resident."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait: the model is being loaded for an earlier request."""


@dataclass(frozen=True, slots=True)
class Load:
    """Unload the victims, then load the model, and call `ModelCache.loaded` or `ModelCache.failed`."""

    evict: tuple[Victim, ...] = ()


class Reason(Enum):
    """Why a model cannot be loaded now."""

    TOO_LARGE = "larger than the budget"
    LOADING = "another model is being loaded"
    IN_USE = "all other resident models are executing or pinned"
    TOO_MANY = "too many evictions for one load"


@dataclass(frozen=True, slots=True)
class Refuse:
    """The model cannot be loaded now: reason and amounts of memory."""

    reason: Reason
    model: str
    size_bytes: int
    budget_bytes: int
    free_bytes: int
    """Negative if the budget was reduced while models are in use."""
    evictable_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.model} needs {_in_mb(self.size_bytes)} of {_in_mb(self.budget_bytes)}, of which "
            f"{_in_mb(self.free_bytes)} are free and {_in_mb(self.evictable_bytes)} evictable: "
            f"{self.reason.value}"
        )


Decision = Run | Wait | Load | Refuse

_RUN, _WAIT = Run(), Wait()


class Eviction(NamedTuple):
    """One eviction and its reason."""

    at_s: float
    model: str
    score: float
    """Score that the policy assigned; see `Victim`."""
    size_bytes: int
    load_ms: float
    """Duration of a reload."""
    made_room_for: str
    """Model whose load needed memory; empty if the budget was reduced or a model was larger than expected."""


class ModelCache:
    """Models within a memory budget. Not thread-safe.

    Parameters
    ----------
    budget_bytes : int
        Memory for all models together.
    policy : Policy
        Chooses the victims. Must not be shared with other caches.
    most_evictions : int, optional
        Maximum number of evictions for one load; a load that needs more is refused. None: no limit.

    Attributes
    ----------
    budget_bytes : int
        Memory for all models together; changed by `resize`.
    free_bytes : int
        Budget without the memory of resident and loading models; may be negative, see `Refuse`.
    resident : mapping of str to ModelCosts
        Costs of the resident models, by name.
    pinned : set of str
        Models that are never evicted, resident or not; the caller may change it.
    evictions : sequence of Eviction
        The last 1000 evictions, oldest first.

    Raises
    ------
    InvalidArgument
        If the budget or the limit is negative.
    """

    def __init__(self, budget_bytes: int, policy: Policy, most_evictions: int | None = None) -> None:
        if budget_bytes < 0 or (most_evictions is not None and most_evictions < 0):
            raise InvalidArgument(
                f"a cache cannot have {budget_bytes} bytes and at most {most_evictions} evictions per load"
            )
        self.policy = policy
        self.budget_bytes = self.free_bytes = budget_bytes
        self.resident: dict[str, ModelCosts] = {}
        self.pinned: set[str] = set()
        self.evictions: deque[Eviction] = deque(maxlen=_LOG_ENTRIES)
        self._most_evictions = most_evictions
        self._loading: tuple[str, ModelCosts] | None = None
        self._executing: Counter[str] = Counter()
        policy.resized(budget_bytes)

    def request(self, model: str, costs: ModelCosts, now_s: float) -> Decision:
        """Decide about a request.

        Parameters
        ----------
        model : str
        costs : ModelCosts
            Estimated costs of the model; used only if it must be loaded.
        now_s : float
        """
        self.policy.requested(model, now_s)
        if model in self.resident:
            return _RUN
        if self._is_loading(model):
            return _WAIT
        return self.load(model, costs, now_s)

    def load(self, model: str, costs: ModelCosts, now_s: float) -> Load | Refuse:
        """Decide about a load without a request, or again after a refused load.

        Raises
        ------
        InvalidArgument
            If the model is resident or loading.
        """
        if model in self.resident or self._is_loading(model):
            raise InvalidArgument(f"{model} is resident or loading already")
        if costs.size_bytes > self.budget_bytes:
            return self._refuse(Reason.TOO_LARGE, model, costs)
        if self._loading is not None:
            return self._refuse(Reason.LOADING, model, costs)
        needed_bytes, victims = costs.size_bytes - self.free_bytes, tuple[Victim, ...]()
        if needed_bytes > 0:
            if self._evictable_bytes() < needed_bytes:
                return self._refuse(Reason.IN_USE, model, costs)
            victims = tuple(self.policy.victims(self._evictable(), needed_bytes, now_s))
            if self._most_evictions is not None and len(victims) > self._most_evictions:
                return self._refuse(Reason.TOO_MANY, model, costs)
            self._evict(victims, model, now_s)
        self._loading = (model, costs)
        self.free_bytes -= costs.size_bytes
        return Load(victims)

    def loaded(self, model: str, now_s: float, measured: ModelCosts | None = None) -> tuple[Victim, ...]:
        """Report the end of a load; returns the models to unload if the model is larger than estimated.

        Parameters
        ----------
        model : str
        now_s : float
        measured : ModelCosts, optional
            Measured costs, which replace the estimated ones.
        """
        costs = self._take_load(model)
        if measured is not None:
            self.free_bytes += costs.size_bytes - measured.size_bytes
            costs = measured
        self.resident[model] = costs
        self.policy.loaded(model, costs, now_s)
        return self._evict_to_fit(now_s, spared=model)

    def failed(self, model: str) -> None:
        """Report a failed load, which frees its memory. Victims of this load remain evicted."""
        self.free_bytes += self._take_load(model).size_bytes

    def lost(self, model: str, now_s: float) -> None:
        """Report that a resident model is no longer in memory, for example because its process has died."""
        self.free_bytes += self._costs_of(model).size_bytes
        del self.resident[model]
        del self._executing[model]
        self.policy.evicted(model, now_s)

    def began(self, model: str) -> None:
        """Report the start of an execution. The model is not evicted until its end."""
        self._costs_of(model)
        self._executing[model] += 1

    def ended(self, model: str, now_s: float) -> tuple[Victim, ...]:
        """Report the end of an execution; returns the models to unload after a reduction of the budget."""
        left = self._executing[model] - 1
        if left < 0:
            if model in self.resident:
                raise InvalidArgument(f"no request executes {model}")
            left = 0  # the model was lost during the execution
        if left:
            self._executing[model] = left
        else:
            del self._executing[model]
        return self._evict_to_fit(now_s)

    def resize(self, budget_bytes: int, now_s: float) -> tuple[Victim, ...]:
        """Change the budget; returns the models to unload.

        If models in use exceed the budget, they are returned later, when their executions end.
        """
        if budget_bytes < 0:
            raise InvalidArgument(f"the budget cannot be {budget_bytes} bytes")
        self.free_bytes += budget_bytes - self.budget_bytes
        self.budget_bytes = budget_bytes
        self.policy.resized(budget_bytes)
        return self._evict_to_fit(now_s)

    def _is_loading(self, model: str) -> bool:
        return self._loading is not None and self._loading[0] == model

    def _take_load(self, model: str) -> ModelCosts:
        if self._loading is None or self._loading[0] != model:
            raise InvalidArgument(f"{model} was not being loaded")
        (_, costs), self._loading = self._loading, None
        return costs

    def _costs_of(self, model: str) -> ModelCosts:
        costs = self.resident.get(model)
        if costs is None:
            raise InvalidArgument(f"{model} is not resident")
        return costs

    def _in_use(self) -> set[str]:
        """Resident models that must not be evicted."""
        return (self._executing.keys() | self.pinned) & self.resident.keys()

    def _evictable(self) -> Mapping[str, ModelCosts]:
        if not self._executing and not self.pinned:
            return self.resident
        in_use = self._in_use()
        return {model: costs for model, costs in self.resident.items() if model not in in_use}

    def _evictable_bytes(self) -> int:
        taken = self.budget_bytes - self.free_bytes
        if self._loading is not None:
            taken -= self._loading[1].size_bytes
        if not (self._executing or self.pinned):
            return taken
        return taken - _bytes_of(map(self.resident.__getitem__, self._in_use()))

    def _evict(self, victims: Iterable[Victim], made_room_for: str, now_s: float) -> None:
        for model, score in victims:
            costs = self.resident.pop(model)
            self.free_bytes += costs.size_bytes
            eviction = Eviction(now_s, model, score, costs.size_bytes, costs.load_ms, made_room_for)
            self.evictions.append(eviction)
            self.policy.evicted(model, now_s)

    def _evict_to_fit(self, now_s: float, spared: str = "") -> tuple[Victim, ...]:
        """Evict until the models fit into the budget, or no further model may be evicted.

        ``spared`` is the model that was just loaded; it is not evicted, since a request waits for it.
        """
        if self.free_bytes >= 0:
            return ()
        evictable = {model: costs for model, costs in self._evictable().items() if model != spared}
        needed_bytes = min(-self.free_bytes, _bytes_of(evictable.values()))
        if not needed_bytes:
            return ()
        victims = tuple(self.policy.victims(evictable, needed_bytes, now_s))
        self._evict(victims, "", now_s)
        return victims

    def _refuse(self, reason: Reason, model: str, costs: ModelCosts) -> Refuse:
        return Refuse(
            reason, model, costs.size_bytes, self.budget_bytes, self.free_bytes, self._evictable_bytes()
        )


def _bytes_of(all_costs: Iterable[ModelCosts]) -> int:
    return sum(costs.size_bytes for costs in all_costs)


def _in_mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
