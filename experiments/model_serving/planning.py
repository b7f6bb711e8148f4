"""Plans the memory and the eviction policy of an edge's networks, from a log of requests and costs of models.

The log is replayed with the real cache and policies, with budgets from the largest model to all models. The
result has two bounds besides the policies. *Fixed set*: the best set of models that is selected once and
loaded before the log starts. The other models are loaded for each request, in separate memory and without a
queue. It is the bound of static choices; a policy may do better. *Clairvoyant*: the best known result, the
least of all policies, the fixed set and two policies that know the log. The optimum is not computed.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.model_cache.hindsight import CLAIRVOYANT_POLICIES, best_fixed_set
from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.registry import make_policy, policy_names
from nearsight.experiments.datasets.tables import read_rows
from nearsight.experiments.framework import drawing
from nearsight.experiments.model_serving.loader import serve_with_loader
from nearsight.experiments.model_serving.simulation import knowledge_of
from nearsight.experiments.traces.model_requests import ModelRequests

FIXED_SET, CLAIRVOYANT = "fixed set", "clairvoyant"
_BOUNDS = {FIXED_SET: ":", CLAIRVOYANT: "--"}
"""Line styles of the bounds."""
COLUMNS = ("model", "memory_mb", "load_ms", "execution_ms")
"""Columns of a table of costs."""
MOST_MB = 1e12
"""Limit of budgets and of memory in a table of costs; numbers of bytes must fit into 64 bits."""
_WARM_UP = 0.1
"""Share of the requests at the start that are not counted, because the cache is empty at first."""
_QUANTILE = 0.95
_MB = 1e6
_NAMES_IN_ERROR = 5
"""Maximum number of names in an error message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a policy, or of a bound, with one budget."""

    policy: str
    budget_bytes: int
    p95_ms: float
    mean_ms: float
    hit_ratio: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Results of all policies and bounds with all budgets."""

    outcomes: tuple[Outcome, ...]
    """For each budget in ascending order: policies, then bounds."""

    @property
    def budgets_bytes(self) -> tuple[int, ...]:
        """The budgets in ascending order."""
        return tuple(dict.fromkeys(one.budget_bytes for one in self.outcomes))

    def at(self, budget_bytes: int) -> dict[str, Outcome]:
        """Results of policies and bounds with one budget, by name."""
        return {one.policy: one for one in self.outcomes if one.budget_bytes == budget_bytes}

    def best(self, budget_bytes: int) -> Outcome:
        """The policy with the lowest 95th percentile, then the lowest mean."""
        policies = [one for name, one in self.at(budget_bytes).items() if name not in _BOUNDS]
        return min(policies, key=lambda one: (one.p95_ms, one.mean_ms))

    def least_memory(self, p95_ms: float) -> Outcome | None:
        """The best policy with the smallest budget that meets the 95th percentile; None if there is none."""
        found = (self.best(budget) for budget in self.budgets_bytes)
        return next((one for one in found if one.p95_ms <= p95_ms), None)


def default_policies() -> tuple[str, ...]:
    """All policies that are not clairvoyant, except random eviction."""
    return tuple(name for name in policy_names(clairvoyant=False) if name != "random")


def default_budgets(costs: Iterable[ModelCosts], steps: int) -> tuple[int, ...]:
    """Evenly spaced budgets [bytes], from the size of the largest model to the size of all models."""
    sizes = [one.size_bytes for one in costs]
    return tuple(sorted({int(budget) for budget in np.linspace(max(sizes), sum(sizes), steps)}))


def plan(
    requests: ModelRequests,
    costs: Mapping[str, ModelCosts],
    policies: Sequence[str],
    budgets_bytes: Sequence[int],
    advance: Callable[[int], None] = lambda _steps: None,
) -> Plan:
    """Replay the log with each budget and policy.

    Parameters
    ----------
    requests : ModelRequests
        At least one.
    costs : mapping of str to ModelCosts
        Costs of every requested model.
    policies : sequence of str
        Names as in `default_policies`.
    budgets_bytes : sequence of int
        Each at least as large as the largest model.
    advance : callable
        Called with 1 after each replay.

    Raises
    ------
    InvalidArgument
        If there is no request, a model has no costs, or a budget is too small.
    """
    _check(requests, costs, budgets_bytes)
    outcomes = []
    for budget in sorted(budgets_bytes):
        found = []
        for policy in policies:
            found.append(_replayed(policy, requests, costs, budget))
            advance(1)
        found.append(_fixed_set(requests, costs, budget))
        known = [*found, *(_replayed(policy, requests, costs, budget) for policy in CLAIRVOYANT_POLICIES)]
        p95_ms, mean_ms = min(one.p95_ms for one in known), min(one.mean_ms for one in known)
        hit_ratio = max(one.hit_ratio for one in known)
        outcomes += [*found, Outcome(CLAIRVOYANT, budget, p95_ms, mean_ms, hit_ratio)]
        advance(1)
    return Plan(tuple(outcomes))


def costs_of_repository(folder: Path) -> dict[str, ModelCosts]:
    """Costs of the networks in a folder of `nearsight models`, without those that were not measured."""
    return {
        name: manifest.measured.costs
        for name, manifest in ModelRepository(folder).manifests().items()
        if manifest.measured is not None
    }


def read_costs(path: str | os.PathLike[str]) -> dict[str, ModelCosts]:
    """Read a table with the columns ``model,memory_mb,load_ms,execution_ms``.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If a row is malformed, or a model has two rows. The message names the file and the line.
    """
    costs: dict[str, ModelCosts] = {}
    for row in read_rows(path, (COLUMNS,)):
        name = row.text("model")
        if name in costs:
            raise row.error(f"{name!r} occurs twice", "one row per model")
        memory_mb = row.number("memory_mb")
        if memory_mb > MOST_MB:
            raise row.error(f"memory_mb is {memory_mb:g}", f"at most {MOST_MB:g}")
        try:
            costs[name] = ModelCosts(
                round(memory_mb * _MB), row.number("load_ms"), row.number("execution_ms")
            )
        except InvalidArgument as error:
            raise row.error(error.message, "a positive size, and times that are not negative") from error
    return costs


def _check(requests: ModelRequests, costs: Mapping[str, ModelCosts], budgets_bytes: Sequence[int]) -> None:
    if not len(requests):
        raise InvalidArgument("the log has no requests")
    unknown = [name for name in requests.names if name not in costs]
    if unknown:
        more = f" and {len(unknown) - _NAMES_IN_ERROR} more" if len(unknown) > _NAMES_IN_ERROR else ""
        raise InvalidArgument(
            f"there are no costs of {', '.join(unknown[:_NAMES_IN_ERROR])}{more}",
            advice="measure them with `nearsight models profile`, or give a table with --costs",
        )
    largest = max(requests.names, key=lambda name: costs[name].size_bytes)
    if min(budgets_bytes) < costs[largest].size_bytes:
        raise InvalidArgument(
            f"{largest} needs {costs[largest].size_bytes / _MB:,.0f} MB, more than the "
            f"{min(budgets_bytes) / _MB:,.0f} MB of the smallest budget",
            advice="give budgets that can hold the largest model",
        )


def _replayed(
    policy: str, requests: ModelRequests, costs: Mapping[str, ModelCosts], budget_bytes: int
) -> Outcome:
    cache = ModelCache(budget_bytes, make_policy(policy, knowledge_of(requests)))
    served = serve_with_loader(requests, costs, cache)
    first = int(_WARM_UP * len(requests))
    latency_ms, hit_ratio = served.latency_ms[first:], 1.0 - float(served.missed[first:].mean())
    return _outcome(policy, budget_bytes, _p95(latency_ms), float(latency_ms.mean()), hit_ratio)


def _p95(latency_ms: NDArray[np.float64]) -> float:
    return float(np.quantile(latency_ms, _QUANTILE, method="higher"))


def _outcome(policy: str, budget_bytes: int, p95_ms: float, mean_ms: float, hit_ratio: float) -> Outcome:
    return Outcome(policy, budget_bytes, round(p95_ms, 3), round(mean_ms, 3), round(hit_ratio, 5))


def _fixed_set(requests: ModelRequests, costs: Mapping[str, ModelCosts], budget_bytes: int) -> Outcome:
    """The best fixed set for the percentile, and the best for the mean, without any queue."""
    counted = requests.models[int(_WARM_UP * len(requests)) :]
    counts = np.bincount(counted, minlength=len(requests.names))
    of = [costs[name] for name in requests.names]
    sizes = np.array([one.size_bytes for one in of])
    load_ms, execution_ms = (
        np.array([getattr(one, name) for one in of]) for name in ("load_ms", "execution_ms")
    )
    kept = best_fixed_set(counts * load_ms, sizes, budget_bytes)
    loaded_ms = load_ms + execution_ms
    means = np.where(kept, execution_ms, loaded_ms)

    def is_reached(most_ms: float) -> bool:
        """Whether a set reaches this percentile: it holds models that exceed it only with their load."""
        late = (execution_ms <= most_ms) & (most_ms < loaded_ms)
        resident = best_fixed_set(np.where(late, counts, 0), sizes, budget_bytes)
        return _p95(np.where(resident, execution_ms, loaded_ms)[counted]) <= most_ms

    times_ms = np.unique([execution_ms, loaded_ms]).tolist()
    best_ms = times_ms[bisect_left(times_ms, True, key=is_reached)]
    mean_ms, hit_ratio = means @ counts / len(counted), counts[kept].sum() / len(counted)
    return _outcome(FIXED_SET, budget_bytes, best_ms, float(mean_ms), float(hit_ratio))


def draw_plan(plan: Plan, path: Path, text: str) -> None:
    """Draw the 95th percentile and the mean of the latency.

    Raises
    ------
    OSError
        If the picture cannot be written.
    """
    with rc_context(drawing.STYLE):
        picture = drawing.new_picture(10.5, 4.4)
        tail, mean = picture.subplots(1, 2)
        for axes, number, title in ((tail, "p95_ms", "95th percentile"), (mean, "mean_ms", "Mean latency")):
            _draw(axes, plan, number)
            axes.set(title=title, xlabel="memory [GB]", ylabel="latency [s]")
            if min(getattr(one, number) for one in plan.outcomes) > 0:  # a logarithmic axis would hide zeros
                drawing.plain_logarithmic(axes.yaxis)
        drawing.caption(picture, text)
        drawing.legend_below(picture, tail, columns=6)
        drawing.save(picture, path)


def _draw(axes: Axes, plan: Plan, number: str) -> None:
    budgets = plan.budgets_bytes
    x = [budget / 1e9 for budget in budgets]
    by_budget = [plan.at(budget) for budget in budgets]
    policies = [name for name in by_budget[0] if name not in _BOUNDS]
    best = [getattr(plan.best(budget), number) / 1e3 for budget in budgets]
    axes.plot(x, best, color="#f2c49b", linewidth=7, solid_capstyle="round", label="best policy")
    for place, name in enumerate(policies):
        y = [getattr(one[name], number) / 1e3 for one in by_budget]
        axes.plot(x, y, color=colormaps["tab10"](place % 10), linewidth=1.2, label=name)
    for name, line in _BOUNDS.items():
        y = [getattr(one[name], number) / 1e3 for one in by_budget]
        axes.plot(x, y, line, color="black", linewidth=1.5, label=name)
