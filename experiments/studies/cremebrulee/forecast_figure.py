"""Our policy: the share of the gap between CremeBrulee and its oracle that it closes, and each part's gain.

There are two workloads of an hour, under the four arrival processes that were fixed beforehand: 300
functions, each with its own model at CremeBrulee's costs, and mCache's seven models behind 300 functions. The
gap to IAM is computed in the same way. `replay` compares the policies. With a loader that takes time, loading
ahead is compared as well. The same policy with the true momentary rates shows the remaining potential for
seven models. It is no upper bound for 300: between its bursts a model has rate zero although it will be
requested again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.common.model_cache.forecast import Factor, RateForecast
from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policies.forecast import Forecast
from nearsight.common.model_cache.policy import ModelCosts, Policy
from nearsight.common.model_cache.registry import make_policy
from nearsight.common.model_cache.scoring import Column
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, leaves, nested
from nearsight.experiments.model_serving.loader import serve_with_loader
from nearsight.experiments.model_serving.simulation import Served, knowledge_of, preload, replay
from nearsight.experiments.model_serving.workloads import Recipe, Workload
from nearsight.experiments.model_serving.zoo import cremebrulee_models, mcache_models
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES, CREMEBRULEE, Diurnal

OWN, SEVEN = "300 models", "7 models"
MEMORY = (0.4, 0.6, 0.8)
"""Memory as a share of the size of all models: mCache's sizes."""
REPLAY, LOADER = "replay", "loader"
_ORACLE, _OURS, _AHEAD = "cremebrulee-oracle", "forecast", "forecast, loading ahead"
_TRUE = "true rates"
BASELINES = ("cremebrulee", "iam", "iam-ewma")
_RUNS = 8
_REQUESTS = {REPLAY: 4_000, LOADER: 2_000}
"""Requests to 300 models in the hour; half as many with the loader, so that it has idle time."""
_SHARE, _WORSE = 0.3, 0.02
_DAY_S = Diurnal().day_s
_PERSISTENCE_S = 60.0
"""Expected duration of a difference of losses [s]. Ten times as long gave worse results (decision 045)."""
_MARGIN = 1.2
_CANDIDATES = 3
_MEMORY_S = 600.0
_ALL = frozenset(Factor)

PARTS: dict[str, Callable[[], Policy]] = {
    _OURS: lambda: Forecast(RateForecast(day_s=_DAY_S)),
    **{
        f"without {factor}": lambda factor=factor: Forecast(RateForecast(_ALL - {factor}, _DAY_S))  # type: ignore[misc]
        for factor in Factor
    },
    "long rate alone": lambda: Forecast(RateForecast(frozenset(), _DAY_S)),
    "greedy set": lambda: Forecast(RateForecast(day_s=_DAY_S), greedy=True),
}
"""Our policy, and variants without one of its parts."""


class TrueRates(Forecast):
    """Our policy with the true rates at which the workload was drawn."""

    def __init__(self, drawn: Workload) -> None:
        super().__init__(RateForecast(frozenset()))
        self._drawn = drawn

    def scores(self, now_s: float) -> Column:
        """Scores of resident models."""
        rates = self._drawn.rates_at(now_s)
        scores = np.zeros(len(self._resident))
        for row in np.flatnonzero(self._resident):
            scores[row] = self.density()[row] * rates[self._names[row]]
        return scores


class LoadAhead(Forecast):
    """Our policy, which also chooses models to load ahead while the loader is idle: a `SelectPrefetch`.

    The absent model with the largest expected loss is loaded ahead if that pays: its loss exceeds that of the
    models that are evicted for it, over the time for which the difference is expected to last; and this gain
    exceeds the expected delay of requests that arrive while the loader is busy with it.

    Parameters
    ----------
    forecast : RateForecast
        Rate forecast; not shared with other policies.
    costs : mapping of str to ModelCosts
        Costs of all models.
    """

    def __init__(self, forecast: RateForecast, costs: Mapping[str, ModelCosts]) -> None:
        super().__init__(forecast)
        self._costs = costs
        self._miss_hz, self._missed_s = 0.0, 0.0

    def requested(self, model: str, now_s: float) -> None:
        """Count misses: each of them may have to wait for a load ahead."""
        super().requested(model, now_s)
        if not self._resident[self._row(model)]:
            self._miss_hz = self._miss_rate_hz(now_s) + 1 / _MEMORY_S
            self._missed_s = now_s

    def __call__(self, cache: ModelCache, now_s: float) -> str | None:
        """Return the model to load now; None if no load pays."""
        absent = {model: self._costs[model] for model in self._names if model not in cache.resident}
        if not absent or not cache.resident:
            return None
        losses = self.losses(absent, now_s)
        sizes = np.array([costs.size_bytes for costs in absent.values()])
        names = [*absent]
        best, found = 0.0, None
        resident = dict(cache.resident)
        lost = dict(zip(resident, self.losses(resident, now_s).tolist(), strict=True))
        for place in np.argsort(-losses / sizes, kind="stable")[:_CANDIDATES].tolist():
            costs = absent[names[place]]
            needed_bytes = costs.size_bytes - cache.free_bytes
            if costs.size_bytes > cache.budget_bytes:
                continue
            victims = self.victims(resident, needed_bytes, now_s) if needed_bytes > 0 else ()
            saved = losses[place] - _MARGIN * sum(lost[victim.model] for victim in victims)
            delay_ms = self._miss_rate_hz(now_s) * costs.load_ms * costs.load_ms / 2e3
            gain = saved * _PERSISTENCE_S - delay_ms
            if gain > best:
                best, found = gain, names[place]
        return found

    def _miss_rate_hz(self, now_s: float) -> float:
        return self._miss_hz * math.exp((self._missed_s - now_s) / _MEMORY_S)


def workload(models: str, process: str, serving: str, rng: np.random.Generator) -> Workload:
    """Draw the requests of an hour."""
    arrivals = ARRIVAL_PROCESSES[process]
    if models == SEVEN:
        return Recipe(arrivals).draw(mcache_models(), rng)
    recipe = Recipe(arrivals, requests=_REQUESTS[serving], marginals=CREMEBRULEE, own_names=True)
    return recipe.draw(cremebrulee_models(), rng)


class ForecastFigure(Experiment):
    """Our policy and its parts against CremeBrulee, IAM and the oracle under four arrival processes."""

    name: ClassVar[str] = "model-forecast"
    source: ClassVar[str] = "CremeBrulee, 7"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per workload, process and run; the loader serves only the 300 models."""
        runs = range(1 if options.smoke else _RUNS)
        processes = ("on-off",) if options.smoke else tuple(ARRIVAL_PROCESSES)
        return [
            {"serving": serving, "models": models, "process": process, "run": run}
            for serving, models in ((REPLAY, OWN), (LOADER, OWN), (REPLAY, SEVEN))
            for process in processes
            for run in runs
        ]

    def run(self, options: RunOptions, serving: str, models: str, process: str, run: int) -> Iterator[Row]:
        """One row per memory and policy."""
        drawn = workload(models, process, serving, options.rng(self.name, models, process, run))
        for memory in (0.6,) if options.smoke else MEMORY:
            budget_bytes = int(memory * drawn.size_bytes)
            for policy, served in _served(drawn, budget_bytes, serving, run):
                yield {
                    "serving": serving,
                    "models": models,
                    "process": process,
                    "run": run,
                    "memory": memory,
                    "policy": policy,
                    "load_s": served.load_ms_per_request / 1e3,
                    "hit_ratio": served.hit_ratio,
                }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``closed.<serving>.<models>.<process>.<memory>.<baseline>.<policy>``; memory "all" pools sizes."""
        return {"closed": nested(rows, ("serving", "models", "process"), _closed)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """A share of the gap on bursty, diurnal and drifting arrivals; at most 2 % worse than a baseline."""
        targets = []
        found = [*leaves(summary["closed"][REPLAY], 2)]
        for models, process, by_memory in found:
            if process == "poisson":
                continue
            for baseline in ("cremebrulee", "iam"):
                note = ", ".join(
                    f"{one[baseline][_OURS]['median']:.2f} at {percent(float(memory))}"
                    for memory, one in by_memory.items()
                    if memory != "all"
                )
                text = (
                    f"{models}, {process}: share of the gap of {baseline} to the oracle, median, "
                    f"at least {_SHARE:g}"
                )
                value, true = (by_memory["all"][baseline][one]["median"] for one in (_OURS, _TRUE))
                note += f"; with the true rates {true:.2f}"
                targets.append(Target.at_least(text, value, _SHARE, note, digits=3))
        worst, where = max(
            (one[baseline][_OURS]["delay"] - 1, f"{models}, {process}, {memory}, {baseline}")
            for models, process, by_memory in found
            for memory, one in by_memory.items()
            for baseline in ("cremebrulee", "iam")
            if memory != "all"
        )
        text = (
            "the largest excess of our load delay over that of cremebrulee or iam, any process and memory, "
            f"at most {_WORSE:g}"
        )
        return (*targets, Target.at_most(text, worst, _WORSE, f"median of runs; {where}", digits=4))

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per workload, process and memory."""
        for serving, models, process, memory, one in leaves(summary["closed"], 4):
            ours = one["cremebrulee"][_OURS]
            best = one["cremebrulee"].get(_AHEAD, {}).get("median")
            yield {
                "serving": serving,
                "models": models,
                "process": process,
                "memory": memory,
                "of CremeBrulee's gap": f"{ours['median']:.2f} ({ours['p25']:.2f} to {ours['p75']:.2f})",
                "of IAM's": f"{one['iam'][_OURS]['median']:.2f}",
                "of IAM-EWMA's": f"{one['iam-ewma'][_OURS]['median']:.2f}",
                "delay / CremeBrulee's": f"{ours['delay']:.3f}",
                "loading ahead": "" if best is None else f"{best:.2f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the shares of the gap (above), and those of the variants without one part (below)."""
        closed = results.metrics["closed"]
        picture = drawing.new_picture(11.5, 6.6)
        panels = picture.subplots(2, 2, sharey="row")
        for column, models in enumerate((OWN, SEVEN)):
            _draw_shares(panels[0, column], closed[REPLAY][models])
            panels[0, column].set_title(f"{models}: share of CremeBrulee's gap that is closed")
            _draw_parts(panels[1, column], closed[REPLAY][models])
            panels[1, column].set_title(f"{models}: without a part, all memory sizes")
        panels[0, 0].set_ylabel("share of the gap")
        panels[1, 0].set_ylabel("share of the gap")
        panels[0, 0].set_ylim(top=1.15)
        panels[0, 0].legend(ncols=3)
        drawing.legend_below(picture, panels[1, 0], columns=4)
        drawing.caption(
            picture, "Median of runs, whiskers: quartiles; 1 is the oracle, 0 CremeBrulee. Dashed: the target"
        )
        return picture


def _served(drawn: Workload, budget_bytes: int, serving: str, run: int) -> list[tuple[str, Served]]:
    """Results by policy, all with the same requests and the same initial cache."""
    made: dict[str, Policy] = {
        **{name: make_policy(name, knowledge_of(drawn.requests)) for name in (*BASELINES, _ORACLE)},
        **{name: make() for name, make in PARTS.items()},
        _TRUE: TrueRates(drawn),
    }
    if serving == LOADER:
        made = {name: made[name] for name in (*BASELINES, _ORACLE, _OURS)}
        made[_AHEAD] = LoadAhead(RateForecast(day_s=_DAY_S), drawn.costs)
    found = []
    for name, policy in made.items():
        cache = ModelCache(budget_bytes, policy)
        preload(cache, drawn.costs, np.random.default_rng(run))
        if serving == REPLAY:
            served = replay(drawn.requests, drawn.costs, cache)
        else:
            ahead = policy if isinstance(policy, LoadAhead) else None
            served = serve_with_loader(drawn.requests, drawn.costs, cache, ahead)
        found.append((name, served))
    return found


def _closed(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """By memory, baseline and policy: shares of the gap of each run, and load delays over the baseline's."""
    by_memory = {memory: _by_run(of) for memory, of in grouped(rows, "memory").items()}
    sizes = {**by_memory, "all": [one for runs in by_memory.values() for one in runs]}
    policies = [policy for policy in grouped(rows, "policy") if policy not in (*BASELINES, _ORACLE)]
    return {
        memory: {
            baseline: {policy: _share(runs, baseline, policy) for policy in policies}
            for baseline in BASELINES
        }
        for memory, runs in sizes.items()
    }


def _by_run(rows: Sequence[StoredRow]) -> list[dict[str, float]]:
    """Load delays by policy, for each run."""
    return [{row["policy"]: float(row["load_s"]) for row in of} for of in grouped(rows, "run").values()]


def _share(runs: Sequence[Mapping[str, float]], baseline: str, policy: str) -> dict[str, float]:
    shares = [
        (delays[baseline] - delays[policy]) / gap
        for delays in runs
        if (gap := delays[baseline] - delays[_ORACLE]) > 0
    ]
    ratios = [delays[policy] / delays[baseline] for delays in runs]
    low, middle, high = np.percentile(shares, [25, 50, 75])
    numbers = {"median": middle, "p25": low, "p75": high, "min": min(shares), "delay": np.median(ratios)}
    return {what: round(float(number), 4) for what, number in numbers.items()}


def _draw_shares(axes: Any, by_process: Mapping[str, Any]) -> None:
    memories = [memory for memory in next(iter(by_process.values())) if memory != "all"]
    places = np.arange(len(by_process))
    width = 0.8 / len(memories)
    for number, (memory, colour) in enumerate(zip(memories, drawing.SEQUENCE[1:], strict=False)):
        found = [one[memory]["cremebrulee"][_OURS] for one in by_process.values()]
        at = np.array([one["median"] for one in found])
        reach = np.abs([[one["median"] - one["p25"], one["p75"] - one["median"]] for one in found]).T
        shift = (number - (len(memories) - 1) / 2) * width
        axes.bar(
            places + shift,
            at,
            width,
            yerr=reach,
            color=colour,
            label=f"{percent(float(memory))} of the memory",
        )
    axes.axhline(_SHARE, color="#8a8a8a", linestyle="--", linewidth=0.8)
    axes.axhline(0.0, color="#8a8a8a", linewidth=0.8)
    axes.set_xticks(places, [*by_process])


def _draw_parts(axes: Any, by_process: Mapping[str, Any]) -> None:
    places = np.arange(len(by_process))
    parts = [*PARTS, _TRUE]
    width = 0.85 / len(parts)
    colours = ("#24415c", "#1f6f8b", "#7a9e3b", "#9cc3d1", "#b59fc9", "#8a8a8a", "#e0a33a", "#c2571a")
    for number, (part, colour) in enumerate(zip(parts, colours, strict=True)):
        at = [one["all"]["cremebrulee"][part]["median"] for one in by_process.values()]
        axes.bar(places + (number - (len(parts) - 1) / 2) * width, at, width, color=colour, label=part)
    axes.axhline(0.0, color="#8a8a8a", linewidth=0.8)
    axes.set_xticks(places, [*by_process])
