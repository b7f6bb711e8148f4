"""Generates requests for the papers' models by the papers' method: functions, rates, models and calls.

Functions are drawn with the papers' rates, without those that the papers leave out. Rates are scaled to the
requested number of requests, which has the same effect as downsampling. Then each function is associated with
a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.traces.arrivals import (
    MCACHE,
    ArrivalProcess,
    Marginals,
    Segments,
    rarely_called,
)
from nearsight.experiments.traces.model_requests import Association, ModelRequests, associate, own_models


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests for N models, with their costs and true rates."""

    requests: ModelRequests
    costs: dict[str, ModelCosts]
    segments: Segments
    """True rates, by the index of the model."""

    @property
    def size_bytes(self) -> int:
        """Size of all models together."""
        return sum(one.size_bytes for one in self.costs.values())

    def rates_at(self, time_s: float) -> dict[str, float]:
        """True rate [1/s] of each model at a time."""
        names = self.requests.names
        return dict(zip(names, self.segments.rates_at(time_s, len(names)).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of a workload; the defaults are those of mCache's trace of one hour."""

    process: ArrivalProcess
    association: Association = Association.UNIFORM
    functions: int = 300
    """Number of functions; the paper does not give it."""
    requests: int = 2_389
    """Expected number of requests."""
    duration_s: float = 3_600.0
    marginals: Marginals = MCACHE
    quantile: float = 0.9
    """Functions with a rate above this quantile are left out."""
    own_names: bool = False
    """Whether each function has its own model with the costs of a real one (CremeBrulee's simulation)."""

    def draw(self, models: Mapping[str, ModelCosts], rng: np.random.Generator) -> Workload:
        """Generate requests for these real models.

        Parameters
        ----------
        models : mapping of str to ModelCosts
            Costs by name.
        rng : numpy.random.Generator
        """
        names = tuple(models)
        rates = rarely_called(self.marginals.draw(2 * self.functions, rng), self.quantile)[: self.functions]
        rates *= self.requests / self.duration_s / rates.sum()
        load_s = np.array([one.load_ms / 1e3 for one in models.values()])
        chosen = associate(rates, load_s, self.association, rng)
        segments = self.process.segments(rates, self.duration_s, rng)
        times, functions = segments.events(rng)
        if not self.own_names:
            requests = ModelRequests(times, chosen[functions], names)
            return Workload(requests, dict(models), segments.relabelled(chosen))
        requests, called = own_models(times, functions, chosen, names)
        costs = {own: models[names[chosen[one]]] for own, one in zip(requests.names, called, strict=True)}
        labels = np.full(len(rates), -1, dtype=np.int32)
        labels[called] = np.arange(len(called))
        return Workload(requests, costs, segments.relabelled(labels))
