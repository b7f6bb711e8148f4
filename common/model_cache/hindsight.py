"""Compares the waiting times of past requests with two bounds that know them all. For the planner and edges.

*Fixed set*: an operator chooses once which models stay, and they are loaded before the first request. Other
models are loaded for each of their requests, in extra memory and without a queue. It is the bound of static
choices; a policy that changes the resident models may do better. *Clairvoyant*: the best known result. It is
the least of two policies that know the future, the fixed set and what was measured. Finding the optimum takes
too long, so a still lower result may exist. At an edge the two policies start with the fixed set, and
requests do not wait for loads of other models.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from nearsight.common.model_cache.model_cache import Load, ModelCache
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy

_WINDOW_S = 3600.0
_REQUESTS = 2000
_SEARCH_STEPS = 20_000
CLAIRVOYANT_POLICIES = ("belady-min", "cremebrulee-oracle")


@dataclass(slots=True)
class Request:
    """One request for a model."""

    at_s: float
    model: str
    waited_ms: float | None
    """Time until the model was loaded, earlier loads included; None while the request waits."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Mean waiting time of a request for its model: measured, and of the two bounds. Resident model: 0 ms."""

    requests: int
    waited_ms: float
    fixed_set_ms: float
    clairvoyant_ms: float

    @property
    def why(self) -> str:
        """Summary in one line, for the health report."""
        return (
            f"{self.waited_ms:.1f} ms per request over the last {self.requests}, if none is forwarded; "
            f"{self.fixed_set_ms:.1f} ms with the best fixed set, "
            f"at most {self.clairvoyant_ms:.1f} ms with knowledge of all requests"
        )


def best_fixed_set(
    values: NDArray[np.float64], sizes: NDArray[np.int64], room_bytes: int
) -> NDArray[np.bool_]:
    """Choose the models that should stay: the set of the highest total value that fits (0/1 knapsack).

    Branch and bound, in decreasing order of value per byte. It begins with sets of one model and the greedy
    choice. The result is the optimum, unless the search needs more than 20,000 further steps; up to 13 models
    never do.

    Parameters
    ----------
    values : (N,) float64
        Benefit of keeping each model; models without a benefit are not chosen.
    sizes : (N,) int64
        Sizes in memory [bytes].
    room_bytes : int

    Returns
    -------
    (N,) bool
    """
    order = [place for place in np.argsort(-values / sizes, kind="stable").tolist() if values[place] > 0]
    value_of, size_of = values[order].tolist(), sizes[order].tolist()
    values_until = [*accumulate(value_of, initial=0.0)]
    sizes_until = [*accumulate(size_of, initial=0)]

    def fractional(start: int, room: int) -> float:
        """Highest value of the models from ``start`` if a part of one of them could stay."""
        end = bisect_right(sizes_until, sizes_until[start] + room) - 1
        value: float = values_until[end] - values_until[start]
        if end < len(order):
            value += value_of[end] * (room - sizes_until[end] + sizes_until[start]) / size_of[end]
        return value

    best, best_value = 0, -1.0  # sets are numbers; bit n is model n
    single = [(len(order), 0, values[n], 1 << n) for n in reversed(order) if sizes[n] <= room_bytes]
    open_nodes = [(0, room_bytes, 0.0, 0), *single]
    for _ in range(2 * len(order) + _SEARCH_STEPS):
        if not open_nodes:
            break
        start, room, value, kept = open_nodes.pop()
        if value > best_value:
            best, best_value = kept, value
        if start < len(order) and value + fractional(start, room) > best_value:
            open_nodes.append((start + 1, room, value, kept))
            if size_of[start] <= room:
                more = (start + 1, room - size_of[start], value + value_of[start], kept | 1 << order[start])
                open_nodes.append(more)
    return np.array([best >> place & 1 for place in range(len(values))], dtype=bool)


def _fixed_set(
    requests: Sequence[tuple[float, str]], costs: Mapping[str, ModelCosts], budget_bytes: int
) -> tuple[list[str], float]:
    """Models that should stay for the least loading time of the others; that time [ms]."""
    counts = Counter(model for _, model in requests)
    values = np.array([count * costs[model].load_ms for model, count in counts.items()])
    sizes = np.array([costs[model].size_bytes for model in counts])
    kept = best_fixed_set(values, sizes, budget_bytes)
    return [model for model, stays in zip(counts, kept, strict=True) if stays], float(values[~kept].sum())


def _clairvoyant_ms(
    policy: str,
    requests: Sequence[tuple[float, str]],
    costs: Mapping[str, ModelCosts],
    budget_bytes: int,
    kept: Iterable[str],
) -> float:
    """Total loading time [ms] of a clairvoyant policy that starts with the ``kept`` models."""
    cache = ModelCache(budget_bytes, make_policy(policy, Knowledge([model for _, model in requests])))
    for model in kept:
        cache.load(model, costs[model], 0.0)
        cache.loaded(model, 0.0)
    load_ms = 0.0
    for now_s, model in requests:
        if isinstance(cache.request(model, costs[model], now_s), Load):
            load_ms += costs[model].load_ms
            cache.loaded(model, now_s)
    return load_ms


def look_back(
    requests: Sequence[Request], costs: Mapping[str, ModelCosts], budget_bytes: int
) -> Hindsight | None:
    """Compare with both bounds; None without requests. Takes about 100 ms for 2,000 requests.

    It is faster if all models fit into the budget. Excluded are requests that still wait, and models larger
    than the budget.
    """
    ended = [one for one in requests if one.waited_ms is not None]
    ended = [one for one in ended if costs[one.model].size_bytes <= budget_bytes]
    if not ended:
        return None
    events, count = [(one.at_s, one.model) for one in ended], len(ended)
    waited_ms = sum(one.waited_ms or 0.0 for one in ended)
    kept, fixed_set_ms = _fixed_set(events, costs, budget_bytes)
    clairvoyant_ms = min(waited_ms, fixed_set_ms)
    if clairvoyant_ms:
        known = (_clairvoyant_ms(name, events, costs, budget_bytes, kept) for name in CLAIRVOYANT_POLICIES)
        clairvoyant_ms = min(clairvoyant_ms, *known)
    return Hindsight(count, waited_ms / count, fixed_set_ms / count, clairvoyant_ms / count)


class RequestLog:
    """The last requests for models: up to 2,000, none more than an hour before the newest.

    Attributes
    ----------
    costs : dict of str to ModelCosts
        Costs of the requested models.
    changes : int
        Increases whenever the result of `recent` changes.
    """

    def __init__(self) -> None:
        self.costs: dict[str, ModelCosts] = {}
        self.changes = 0
        self._requests: deque[Request] = deque(maxlen=_REQUESTS)
        self._waiting: dict[str, list[Request]] = {}

    def requested(self, model: str, costs: ModelCosts, now_s: float, *, resident: bool) -> None:
        """Record a request. If its model is not resident, `settled` must be called when its load ends."""
        self.costs[model] = costs
        self.changes += 1
        request = Request(now_s, model, 0.0 if resident else None)
        self._requests.append(request)
        if not resident:
            self._waiting.setdefault(model, []).append(request)

    def settled(self, model: str, now_s: float) -> None:
        """Record the end of a load, for all requests that wait for this model."""
        self.changes += 1
        for request in self._waiting.pop(model, ()):
            request.waited_ms = (now_s - request.at_s) * 1e3

    def recent(self) -> list[Request]:
        """The stored requests in order of arrival."""
        last_s = self._requests[-1].at_s if self._requests else 0.0
        return [one for one in self._requests if one.at_s > last_s - _WINDOW_S]
