"""Draws the result of `nearsight plan`: latency over memory, for every policy and both bounds."""

from __future__ import annotations

from pathlib import Path

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes

from nearsight.experiments.framework.drawing import (
    STYLE,
    caption,
    legend_below,
    new_picture,
    plain_logarithmic,
    save,
)
from nearsight.experiments.model_serving.planning import CLAIRVOYANT, FIXED_SET, Plan

_BOUNDS = {FIXED_SET: ":", CLAIRVOYANT: "--"}
"""Line styles of the bounds."""
_BEST = "best policy"


def draw_plan(plan: Plan, path: Path, text: str) -> None:
    """Draw the 95th percentile and the mean of the latency.

    Raises
    ------
    OSError
        If the picture cannot be written.
    """
    with rc_context(STYLE):
        picture = new_picture(10.5, 4.4)
        tail, mean = picture.subplots(1, 2)
        for axes, number, title in ((tail, "p95_ms", "95th percentile"), (mean, "mean_ms", "Mean latency")):
            _draw(axes, plan, number)
            axes.set(title=title, xlabel="memory [GB]", ylabel="latency [s]")
            if min(getattr(one, number) for one in plan.outcomes) > 0:  # a logarithmic axis would hide zeros
                axes.set_yscale("log")
                plain_logarithmic(axes.yaxis)
        caption(picture, text)
        legend_below(picture, tail, columns=6)
        save(picture, path)


def _draw(axes: Axes, plan: Plan, number: str) -> None:
    budgets = plan.budgets_bytes
    x = [budget / 1e9 for budget in budgets]
    by_budget = [plan.at(budget) for budget in budgets]
    policies = [name for name in by_budget[0] if name not in _BOUNDS]
    best = [getattr(plan.best(budget), number) / 1e3 for budget in budgets]
    axes.plot(x, best, color="#f2c49b", linewidth=7, solid_capstyle="round", label=_BEST)
    for place, name in enumerate(policies):
        y = [getattr(one[name], number) / 1e3 for one in by_budget]
        axes.plot(x, y, color=colormaps["tab10"](place % 10), linewidth=1.2, label=name)
    for name, line in _BOUNDS.items():
        y = [getattr(one[name], number) / 1e3 for one in by_budget]
        axes.plot(x, y, line, color="black", linewidth=1.5, label=name)
