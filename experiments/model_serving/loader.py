"""Serves requests for models as an edge does: one loader in parallel with the executions.

A free worker takes the next request. If its model is resident, the worker executes it. Otherwise the request
waits for the loader, which loads one model at a time, in the order of their first requests; threads of their
own execute what waited for a load. If a model cannot be loaded because models in use hold the memory, the
loader retries after each execution. Loads and executions share the cores equally. While the loader is idle,
it may prefetch a model that a callback selects.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nearsight.common.model_cache.model_cache import Load, ModelCache, Reason, Refuse, Run
from nearsight.common.model_cache.policy import ModelCosts, Victim
from nearsight.experiments.model_serving.simulation import Served
from nearsight.experiments.traces.model_requests import ModelRequests

SelectPrefetch = Callable[[ModelCache, float], str | None]
"""Selects the model that an idle loader prefetches at a time [s]; None for no model."""


class Machine(NamedTuple):
    """What the loader and the executions share."""

    cores: float = math.inf
    """Cores for the loader and all executions; with ``inf``, jobs do not slow each other down."""
    others: float = 0.0
    """Average number of jobs of other processes on these cores; each has the same share as one of ours."""
    workers: float = math.inf
    """Number of workers, and also of threads that execute what waited for a load."""


_UNLIMITED, _NO_TIME = Machine(), MappingProxyType[str, float]({})


def serve_with_loader(
    requests: ModelRequests,
    costs: Mapping[str, ModelCosts],
    cache: ModelCache,
    select_prefetch: SelectPrefetch | None = None,
    *,
    machine: Machine = _UNLIMITED,
    clients: int = 0,
    unload_ms: Mapping[str, float] = _NO_TIME,
) -> Served:
    """Serve a trace.

    Parameters
    ----------
    requests : ModelRequests
    costs : mapping of str to ModelCosts
        Costs of every requested model.
    cache : ModelCache
        In any state; it is modified.
    select_prefetch : SelectPrefetch, optional
        Selects models to prefetch.
    machine : Machine
        Default: jobs do not slow each other down, and each request has a worker.
    clients : int
        Number of clients in a closed loop: each sends the next request of the trace when its last one is
        answered. With 0, requests arrive at their times.
    unload_ms : mapping of str to float
        Time by which a load is longer if it evicts this model. Default: 0 for all.

    Returns
    -------
    Served
        ``load_ms`` is the time from when a worker takes a request until its model is resident, including
        earlier loads. ``queue_ms`` is the time without a free worker or thread, and the slow-down of an
        execution by other jobs.
    """
    edge = _Edge(requests, costs, cache, select_prefetch, machine, unload_ms)
    if clients:
        places = iter(range(len(requests)))

        def ask(now_s: float) -> None:
            if (place := next(places, None)) is not None:
                edge.request(place, now_s)

        edge.answered = ask
        for _ in range(clients):
            ask(float(requests.times_s[0]) if len(requests) else 0.0)
    else:
        for place, now_s in enumerate(requests.times_s.tolist()):
            edge.advance(now_s)
            edge.request(place, now_s)
    edge.advance(math.inf)
    return edge.served


class _Cores:
    """Processor sharing: jobs have equal shares of the cores, at most one core each.

    The heap is ordered by the end of each job on a clock of the work per job.
    """

    def __init__(self, cores: float, others: float) -> None:
        self._cores, self._others = cores, others
        self._now_s = self._done_s = 0.0
        self._numbers = itertools.count()
        self._jobs: list[tuple[float, int, Callable[[float], None]]] = []

    @property
    def next_end_s(self) -> float:
        """End of the next job if no job is added; ``inf`` without jobs."""
        if not self._jobs:
            return math.inf
        return self._now_s + max(0.0, self._jobs[0][0] - self._done_s) / self._speed

    def start(self, work_ms: float, ended: Callable[[float], None], now_s: float) -> None:
        """Start a job, which takes ``work_ms`` on a core of its own."""
        self._reach(now_s)
        heapq.heappush(self._jobs, (self._done_s + 1e-3 * work_ms, next(self._numbers), ended))

    def end_next(self) -> None:
        """Complete the next job and call its callback."""
        end_s = self.next_end_s
        self._reach(end_s)
        heapq.heappop(self._jobs)[2](end_s)

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / (max(1, len(self._jobs)) + self._others))

    def _reach(self, now_s: float) -> None:
        self._done_s += (now_s - self._now_s) * self._speed
        self._now_s = now_s


class _Threads:
    """A queue of requests, and the threads that execute them in this order."""

    def __init__(self, threads: float, begin: Callable[[int, float], bool]) -> None:
        self._free, self._begin = threads, begin
        self._queue: deque[int] = deque()

    def submit(self, place: int, now_s: float) -> None:
        """Queue a request, and take it if a thread is free."""
        self._queue.append(place)
        self._go_on(now_s)

    def release(self, now_s: float) -> None:
        """An execution ended."""
        self._free += 1
        self._go_on(now_s)

    def _go_on(self, now_s: float) -> None:
        while self._queue and self._free:
            occupies_thread = self._begin(self._queue.popleft(), now_s)
            self._free -= occupies_thread


class _Edge:
    """The loader, the executions, and the requests that wait for a worker or a model."""

    def __init__(
        self,
        requests: ModelRequests,
        costs: Mapping[str, ModelCosts],
        cache: ModelCache,
        select_prefetch: SelectPrefetch | None,
        machine: Machine,
        unload_ms: Mapping[str, float],
    ) -> None:
        self._names = [requests.names[model] for model in requests.models.tolist()]
        self._costs, self._cache, self._select_prefetch = costs, cache, select_prefetch
        self._unload_ms = unload_ms
        self._cores = _Cores(machine.cores, machine.others)
        self._loading = False
        self._waiting: dict[str, list[int]] = {}
        """Indices of waiting requests, by the model that is or will be loaded for them."""
        self._workers = _Threads(machine.workers, self._take)
        self._after_load = _Threads(machine.workers, self._execute_loaded)
        self._arrived_s, self._taken_s = np.zeros(len(requests)), np.zeros(len(requests))
        self.served = Served.blank(requests)
        self.answered: Callable[[float], None] = lambda _now_s: None

    def request(self, place: int, now_s: float) -> None:
        """Process the arrival of a request."""
        self._arrived_s[place] = now_s
        self._workers.submit(place, now_s)

    def _take(self, place: int, now_s: float) -> bool:
        """A worker takes a request; returns whether it executes it."""
        name, self._taken_s[place] = self._names[place], now_s
        decision = self._cache.request(name, self._costs[name], now_s)
        self.served.missed[place] = not isinstance(decision, Run)
        if isinstance(decision, Run):
            self._cache.began(name)
            self._execute(place, now_s, self._workers)
        elif isinstance(decision, Refuse) and decision.reason not in {Reason.LOADING, Reason.IN_USE}:
            self.served.refused[place], self.served.missed[place] = True, False
            self._cores.start(0.0, self.answered, now_s)
        else:
            self._waiting.setdefault(name, []).append(place)
            if isinstance(decision, Load):
                self._begin(name, decision.evict, now_s)
        self._prefetch(now_s)
        return isinstance(decision, Run)

    def advance(self, now_s: float) -> None:
        """Complete all jobs that end until ``now_s``."""
        while self._cores.next_end_s <= now_s and self._cores.next_end_s < math.inf:
            self._cores.end_next()

    def _execute_loaded(self, place: int, now_s: float) -> bool:
        self._execute(place, now_s, self._after_load)
        return True

    def _execute(self, place: int, now_s: float, threads: _Threads) -> None:
        """Execute a request whose model is in use, on one of these threads."""
        name = self._names[place]
        work_ms = self.served.execution_ms[place] = self._costs[name].execution_ms
        waited_ms = self.served.load_ms[place] + 1e3 * self._arrived_s[place]

        def ended(end_s: float) -> None:
            self._cache.ended(name, end_s)
            self.served.queue_ms[place] = max(0.0, 1e3 * end_s - waited_ms - work_ms)
            threads.release(end_s)
            self._load_next(end_s)
            self.answered(end_s)

        self._cores.start(work_ms, ended, now_s)

    def _begin(self, model: str, victims: Iterable[Victim], now_s: float) -> None:
        costs = self._costs[model]
        unload_ms = sum(self._unload_ms.get(one.model, 0.0) for one in victims)
        costs = replace(costs, load_ms=unload_ms + costs.load_ms)  # as an edge measures it

        def ended(end_s: float) -> None:
            self._loading = False
            self._cache.loaded(model, end_s, costs)
            for place in self._waiting.pop(model, ()):
                self._cache.began(model)
                self.served.load_ms[place] = 1e3 * (end_s - self._taken_s[place])
                self._after_load.submit(place, end_s)
            self._load_next(end_s)
            self._prefetch(end_s)

        self._loading = True
        self._cores.start(costs.load_ms, ended, now_s)

    def _load_next(self, now_s: float) -> None:
        for model in () if self._loading else self._waiting:
            if isinstance(decision := self._cache.load(model, self._costs[model], now_s), Load):
                self._begin(model, decision.evict, now_s)
                return

    def _prefetch(self, now_s: float) -> None:
        """Prefetch a model if the loader is idle."""
        if self._select_prefetch is None or self._loading:
            return
        model = self._select_prefetch(self._cache, now_s)
        if model is None:
            return
        if isinstance(decision := self._cache.load(model, self._costs[model], now_s), Load):
            self._begin(model, decision.evict, now_s)
