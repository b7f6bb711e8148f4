"""Requests for models as an edge serves them: one loader beside the executions, which do not wait for it.

Requests of resident models are served at once. The others wait for the loader, which loads one model after
the other. A model that cannot be loaded yet, since others that load hold the memory, is tried again after
each load. While the loader is idle it may load ahead, if it is told what.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from nearsight.common.model_cache.model_cache import Load, ModelCache, Reason, Refuse, Run, Wait
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.model_serving.simulation import Served
from nearsight.experiments.traces.model_requests import ModelRequests

Ahead = Callable[[ModelCache, float], str | None]
"""Which model an idle loader should load now, if any."""


def serve_beside_loader(
    requests: ModelRequests, costs: Mapping[str, ModelCosts], cache: ModelCache, ahead: Ahead | None = None
) -> Served:
    """Serve a trace.

    Parameters
    ----------
    requests : ModelRequests
    costs : mapping of str to ModelCosts
        Of every model that is requested.
    cache : ModelCache
        Any state; it is used up.
    ahead : Ahead, optional
        Loads ahead.

    Returns
    -------
    Served
        ``load_ms`` is the time until the model is there, the loads before it included. Nothing queues for
        the processor.
    """
    edge = _Edge(costs, cache, ahead)
    count = len(requests)
    missed, refused = np.zeros(count, bool), np.zeros(count, bool)
    for place, (now_s, model) in enumerate(
        zip(requests.times_s.tolist(), requests.models.tolist(), strict=True)
    ):
        edge.advance(now_s)
        name = requests.names[model]
        decision = cache.request(name, costs[name], now_s)
        missed[place] = not isinstance(decision, Run)
        if isinstance(decision, Refuse) and decision.reason is not Reason.IN_USE:
            refused[place] = True
        elif isinstance(decision, Load | Refuse):
            edge.want(place, name, now_s, reserved=isinstance(decision, Load))
        elif isinstance(decision, Wait):
            edge.wait(place, name, now_s)
        edge.load_ahead(now_s)
    edge.advance(math.inf)
    load_ms = np.zeros(count)
    load_ms[[*edge.waited_ms]] = [*edge.waited_ms.values()]
    executions_ms = np.array([costs[name].execution_ms for name in requests.names])[requests.models]
    return Served(load_ms, missed & ~refused, refused, np.zeros(count), np.where(refused, 0.0, executions_ms))


class _Edge:
    """The loader, and who waits for it."""

    def __init__(self, costs: Mapping[str, ModelCosts], cache: ModelCache, ahead: Ahead | None) -> None:
        self._costs = costs
        self._cache = cache
        self._ahead = ahead
        self._ends_s: dict[str, float] = {}
        """Of loads, in their order."""
        self._blocked: deque[tuple[int, str, float]] = deque()
        self.waited_ms: dict[int, float] = {}
        """By the place of the request."""

    def want(self, place: int, model: str, now_s: float, *, reserved: bool) -> None:
        """A request needs a load, for which memory is reserved or is not to be had yet."""
        if reserved:
            self._begin(model, now_s)
            self.wait(place, model, now_s)
        else:
            self._blocked.append((place, model, now_s))

    def wait(self, place: int, model: str, since_s: float) -> None:
        """A request waits for a load that is queued or runs."""
        self.waited_ms[place] = 1e3 * (self._ends_s[model] - since_s)

    def advance(self, now_s: float) -> None:
        """Finish the loads that end until then."""
        while self._ends_s and (end_s := next(iter(self._ends_s.values()))) <= now_s:
            model = next(iter(self._ends_s))
            del self._ends_s[model]
            self._cache.loaded(model, end_s)
            for _ in range(len(self._blocked)):
                self._try_again(*self._blocked.popleft(), end_s)
            self.load_ahead(end_s)

    def load_ahead(self, now_s: float) -> None:
        """Let an idle loader load what a request is expected for."""
        if self._ahead is None or self._ends_s:
            return
        model = self._ahead(self._cache, now_s)
        if model is not None and isinstance(self._cache.load(model, self._costs[model], now_s), Load):
            self._begin(model, now_s)

    def _try_again(self, place: int, model: str, since_s: float, now_s: float) -> None:
        if model in self._cache.resident:
            self.waited_ms[place] = 1e3 * (now_s - since_s)
        elif model in self._ends_s:
            self.wait(place, model, since_s)
        elif isinstance(self._cache.load(model, self._costs[model], now_s), Load):
            self._begin(model, now_s)
            self.wait(place, model, since_s)
        else:
            self._blocked.append((place, model, since_s))

    def _begin(self, model: str, now_s: float) -> None:
        """Queue a load."""
        free_s = next(reversed(self._ends_s.values()), now_s)
        self._ends_s[model] = max(now_s, free_s) + 1e-3 * self._costs[model].load_ms
