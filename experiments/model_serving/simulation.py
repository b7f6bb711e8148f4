"""Serves requests for models on a virtual clock, with the cache and policy objects of an edge.

In `replay`, loads and executions take no time: a request hits or loads its model. CremeBrulee counts the load
delay of thousands of models in this way. `serve_in_turn` models its testbed: one thread takes requests from
one queue, and loads and executes each before the next. Requests that arrive while a model is loaded wait, and
count as hits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearsight.common.model_cache.model_cache import Load, ModelCache, Refuse, Run
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy
from nearsight.experiments.model_serving.workloads import Workload
from nearsight.experiments.traces.model_requests import ModelRequests


@dataclass(frozen=True, slots=True)
class Served:
    """Results of M requests, in their order. All arrays are (M,)."""

    load_ms: NDArray[np.float64]
    """Load time of the model as a part of this request's latency; 0 for hits."""
    missed: NDArray[np.bool_]
    """Whether the model was loaded for this request."""
    refused: NDArray[np.bool_]
    """Whether the model could not be loaded."""
    queue_ms: NDArray[np.float64]
    """Time in the queue behind other requests, including their loads."""
    execution_ms: NDArray[np.float64]

    @classmethod
    def blank(cls, requests: ModelRequests) -> Self:
        """All zero, to be filled in."""
        count = len(requests)
        return cls(np.zeros(count), np.zeros(count, bool), np.zeros(count, bool), *np.zeros((2, count)))

    @property
    def hit_ratio(self) -> float:
        """Share of requests whose model was resident."""
        return 1.0 - float((self.missed | self.refused).mean())

    @property
    def load_ms_per_request(self) -> float:
        """CremeBrulee's model load delay: the load time of each model times its miss rate."""
        return float(self.load_ms.mean())

    @property
    def load_ms_per_miss(self) -> float:
        """Mean load time of the misses; 0 without misses."""
        return float(self.load_ms[self.missed].mean()) if self.missed.any() else 0.0

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """Time from arrival to answer."""
        return self.load_ms + self.queue_ms + self.execution_ms


def knowledge_of(requests: ModelRequests, seed: int = 1, window_s: float = Knowledge.window_s) -> Knowledge:
    """Inputs of clairvoyant policies for a trace: its requests, and the mean rates [1/s] of its models."""
    length_s = float(requests.times_s[-1]) if len(requests) and requests.times_s[-1] > 0 else 1.0
    rates = (requests.counts() / length_s).tolist()
    called = [requests.names[model] for model in requests.models.tolist()]
    return Knowledge(called, dict(zip(requests.names, rates, strict=True)), seed, window_s)


def preload(cache: ModelCache, costs: Mapping[str, ModelCosts], rng: np.random.Generator) -> None:
    """Fill a cache at time 0 in random order, as CremeBrulee does; skip models that do not fit."""
    names = [*costs]
    for place in rng.permutation(len(names)).tolist():
        name = names[place]
        if costs[name].size_bytes <= cache.free_bytes:
            cache.load(name, costs[name], 0.0)
            cache.loaded(name, 0.0)


def replay(requests: ModelRequests, costs: Mapping[str, ModelCosts], cache: ModelCache) -> Served:
    """Replay requests in no time: each one hits or loads its model.

    Parameters
    ----------
    requests : ModelRequests
    costs : mapping of str to ModelCosts
        Costs of every requested model.
    cache : ModelCache
        In any state; it is modified.
    """
    served, names = Served.blank(requests), requests.names
    costs_of = [costs[name] for name in names]
    request, loaded = cache.request, cache.loaded
    for place, (now_s, model) in enumerate(
        zip(requests.times_s.tolist(), requests.models.tolist(), strict=True)
    ):
        decision = request(names[model], costs_of[model], now_s)
        if type(decision) is Run:  # by far the most frequent decision
            continue
        if isinstance(decision, Load):
            loaded(names[model], now_s)
            served.missed[place], served.load_ms[place] = True, costs_of[model].load_ms
        elif isinstance(decision, Refuse):
            served.refused[place] = True
    execution_ms = np.array([one.execution_ms for one in costs_of])[requests.models]
    return replace(served, execution_ms=np.where(served.refused, 0.0, execution_ms))


def serve_in_turn(requests: ModelRequests, costs: Mapping[str, ModelCosts], cache: ModelCache) -> Served:
    """Serve with one thread and one queue; the parameters are those of `replay`.

    A request for a model that cannot be loaded is refused at once.
    """
    served, free_s = Served.blank(requests), 0.0
    for place, (arrived_s, model) in enumerate(
        zip(requests.times_s.tolist(), requests.models.tolist(), strict=True)
    ):
        name = requests.names[model]
        begun_s = max(arrived_s, free_s)
        served.queue_ms[place] = 1e3 * (begun_s - arrived_s)
        decision = cache.request(name, costs[name], begun_s)
        if isinstance(decision, Refuse):
            served.refused[place], free_s = True, begun_s
            continue
        load_ms = costs[name].load_ms if isinstance(decision, Load) else 0.0
        if isinstance(decision, Load):
            served.missed[place], served.load_ms[place] = True, load_ms
            cache.loaded(name, begun_s + 1e-3 * load_ms)
        served.execution_ms[place] = costs[name].execution_ms
        free_s = begun_s + 1e-3 * (load_ms + costs[name].execution_ms)
    return served


Serve = Callable[[ModelRequests, Mapping[str, ModelCosts], ModelCache], Served]
"""`replay` or `serve_in_turn`."""


def simulate(workload: Workload, policy: str, budget_bytes: int, seed: int, serve: Serve = replay) -> Served:
    """Serve a workload from a cache that is filled at random; ``seed`` is for the filling and the policy."""
    cache = ModelCache(budget_bytes, make_policy(policy, knowledge_of(workload.requests, seed)))
    preload(cache, workload.costs, np.random.default_rng(seed))
    return serve(workload.requests, workload.costs, cache)
