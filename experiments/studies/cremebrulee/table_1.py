"""Table I of CremeBrulee: 14 requests for three models, step by step, by every policy.

The paper shows BeladyMIN and CremeBrulee-oracle (its text says 13 requests, the table has 14). The penalty of
a model is its number plus one. The cache holds two models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from matplotlib.axes import Axes

from nearsight.common.model_cache.model_cache import Load, ModelCache
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy, policy_names
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import nested

TRACE = (0, 1, 2, 1, 0, 2, 1, 0, 2, 0, 2, 1, 0, 2)
_CAPACITY = 2
PAPER = {"belady-min": (8, 17), "cremebrulee-oracle": (8, 13)}
"""Misses and cost."""


class Table1(Experiment):
    """Eviction decisions, misses and costs on the 14 requests of Table I."""

    name: ClassVar[str] = "cremebrulee-table1"
    source: ClassVar[str] = "CremeBrulee, 5"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per policy."""
        del options
        return [{"policy": policy} for policy in policy_names()]

    def run(self, options: RunOptions, policy: str) -> Iterator[Row]:
        """One row per request."""
        knowledge = Knowledge([str(model) for model in TRACE], seed=options.seed)
        cache = ModelCache(_CAPACITY, make_policy(policy, knowledge))
        for step, model in enumerate(TRACE):
            decision = cache.request(str(model), ModelCosts(1, model + 1), float(step))
            missed = isinstance(decision, Load)
            evicted = [victim.model for victim in decision.evict] if isinstance(decision, Load) else []
            if missed:
                cache.loaded(str(model), float(step))
            yield {
                "policy": policy,
                "step": step,
                "model": model,
                "missed": int(missed),
                "evicted": " ".join(evicted),
                "resident": " ".join(sorted(cache.resident)),
                "cost": (model + 1) * missed,
            }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """For each policy: misses, cost, and the order of evictions."""
        return {"policies": nested(rows, ("policy",), _summary)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The values of the paper's table."""
        found = summary["policies"]
        return tuple(
            Target(
                f"{policy}: {what}, {wanted} in the paper", found[policy][what], found[policy][what] == wanted
            )
            for policy, (misses, cost) in PAPER.items()
            for what, wanted in (("misses", misses), ("cost", cost))
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per policy."""
        for policy, one in summary["policies"].items():
            paper_misses, paper_cost = PAPER.get(policy, ("", ""))
            yield {
                "policy": policy,
                "misses": one["misses"],
                "cost": one["cost"],
                "misses, paper": paper_misses,
                "cost, paper": paper_cost,
                "evicted": one["evicted"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the resident models after each request, for the policies of the table."""
        picture = drawing.new_picture(9.0, 3.6)
        panels = picture.subplots(1, len(PAPER), sharey=True)
        for axes, policy in zip(panels, PAPER, strict=True):
            one = results.metrics["policies"][policy]
            _draw(axes, [row for row in results.rows if row["policy"] == policy])
            axes.set(title=f"{policy}: {one['misses']} misses, cost {one['cost']}", xlabel="request")
        panels[0].set_ylabel("model")
        drawing.caption(picture, "Bars: resident. Filled circles: misses; hollow: hits; crosses: evicted")
        return picture


def _summary(rows: Sequence[StoredRow]) -> dict[str, Any]:
    return {
        "misses": sum(int(row["missed"]) for row in rows),
        "cost": sum(int(row["cost"]) for row in rows),
        "evicted": " ".join(row["evicted"] for row in rows if row["evicted"]),
    }


def _draw(axes: Axes, rows: Sequence[StoredRow]) -> None:
    for row in rows:
        step, model = int(row["step"]), int(row["model"])
        for resident in row["resident"].split():
            axes.barh(int(resident), 1.0, left=step - 0.5, height=0.5, color="#9cc3d1")
        for evicted in row["evicted"].split():
            axes.plot(step - 0.5, int(evicted), "x", color="#c2571a", markersize=7)
        fill = "#24415c" if int(row["missed"]) else "white"
        axes.plot(step, model, "o", color="#24415c", markerfacecolor=fill, markersize=6)
    axes.set_yticks(range(3), ["0 (cost 1)", "1 (cost 2)", "2 (cost 3)"])
    axes.set_xticks(range(len(TRACE)), [str(model) for model in TRACE])
    axes.grid(visible=False)
