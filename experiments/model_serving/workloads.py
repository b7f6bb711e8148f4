"""Requests for the papers' models, made the papers' way: functions, their rates, their models, their calls.

Functions are drawn with the papers' rates, without those that the papers leave out. Rates are scaled to the
number of requests that is wanted, which is what downsampling does to them. Then each function gets a model.
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
    """Requests for N models, and what is true of them."""

    requests: ModelRequests
    costs: dict[str, ModelCosts]
    """Of each model."""
    segments: Segments
    """True rates, by the index of the model."""

    @property
    def size_bytes(self) -> int:
        """Of all models together."""
        return sum(one.size_bytes for one in self.costs.values())


@dataclass(frozen=True, slots=True)
class Recipe:
    """How requests come about; the defaults are mCache's hour."""

    process: ArrivalProcess
    association: Association = Association.UNIFORM
    functions: int = 300
    """Behind the requests; the paper does not say how many."""
    requests: int = 2_389
    """Expected number."""
    duration_s: float = 3_600.0
    marginals: Marginals = MCACHE
    quantile: float = 0.9
    """Functions that are called more often than this share of all are left out."""
    own_names: bool = False
    """Whether each function has its own model, with the costs of a real one: CremeBrulee's simulation."""

    def draw(self, models: Mapping[str, ModelCosts], rng: np.random.Generator) -> Workload:
        """Requests for these real models.

        Parameters
        ----------
        models : mapping of str to ModelCosts
            By their names.
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
