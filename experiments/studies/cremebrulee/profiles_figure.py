"""Figures 1 and 3 of CremeBrulee: load, first and later executions of its 26 CNNs, and their costs.

Figure 3 is measured for CPUs only, next to the paper's values; its part for GPUs needs a p2.xlarge. Figure 2
is in `mcache-traffic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any, ClassVar

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Results, Target
from nearsight.experiments.framework.numbers import median_in_words, rank_correlation
from nearsight.experiments.model_serving.profiles import Profiles, medians
from nearsight.experiments.model_serving.zoo import cremebrulee_models

_PAPER = cremebrulee_models()
_CPU_USD_PER_H, _CPU_GB = 0.096, 8
_GPU_USD_PER_H, _GPU_GB, _GPU_OWN_GB = 0.90, 61, 12
"""On-demand price [$/h], system memory and GPU memory of an m5.large and a p2.xlarge, in us-east-1."""
_SHOWN = ("MobileNetV2", "MobileNet", "NASNetMobile", "ResNet50", "NASNetLarge", "EfficientNetB7", "VGG19")
_TIMES = ("load_ms", "first_ms", "execution_ms")
_COLOURS = {"load": "#c2571a", "first execution": "#e0a33a", "later execution": "#24415c"}


class Figure(Profiles):
    """Load, first and later executions of the 26 CNNs, 50 cycles of 10 executions each; their costs."""

    name: ClassVar[str] = "cremebrulee-profiles"
    source: ClassVar[str] = "CremeBrulee, 3.3 and 3.4"
    shares_cells_with: ClassVar[tuple[str, ...]] = ("mcache-profiles",)
    cycles: ClassVar[int] = 50

    def wanted(self, names: Sequence[str]) -> Sequence[str]:
        """The networks of the paper."""
        return [name for name in names if name in _PAPER]

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The paper's statements about its CPU."""
        slowest = max(summary, key=lambda name: float(summary[name]["execution_ms"]["median"]))
        longer = sum(one["load_over_execution"] > 1.0 for one in summary.values())
        return (
            Target(
                "networks whose load takes longer than an execution; all in the paper",
                longer,
                longer == len(summary),
                f"of {len(summary)} measured; {len(_PAPER)} in the paper",
            ),
            Target.at_most(
                "the slowest execution [s]; under 4 in the paper",
                summary[slowest]["execution_ms"]["median"] / 1e3,
                4.0,
                slowest,
                3,
            ),
            Target.at_least(
                "first over later executions, median of networks; often much larger in figure 1",
                median(one["first_over_later"] for one in summary.values()),
                1.5,
                "onnxruntime prepares the graph in the load",
                3,
            ),
            *_likeness(summary),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per network, then the cost calculations."""
        for name, one in summary.items():
            steps = [f"{one[step]['median']:+.0f}" for step in ("loaded_mb", "executed_mb", "unloaded_mb")]
            said = _PAPER.get(name)
            yield {
                "network": name,
                "cycles": one["cycles"],
                **{column.replace("_", " "): median_in_words(one[column], 1) for column in _TIMES},
                "MB: load, run, unload": " ".join(steps),
                "load, execution [µ$]": _micro_usd(one["load_ms"]["median"], one["execution_ms"]["median"]),
                "paper's ms": f"{said.load_ms:.0f}, {said.execution_ms:.0f}" if said else "",
                "paper's µ$": _micro_usd(said.load_ms, said.execution_ms) if said else "",
            }
        for what, ours, paper in _prices():
            yield {"network": what, "calculated": f"{ours:.2f}", "paper's": paper}

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figure 1 for some networks, and figure 3 for all with its two scales."""
        found = results.metrics
        picture = drawing.new_picture(11.6, 2.0 + 0.22 * max(10, len(found)))
        some, every = picture.subplots(1, 2, width_ratios=[1, 1.15])
        shown = [name for name in _SHOWN if name in found] or [*found]
        for place, (part, column) in enumerate(zip(_COLOURS, _TIMES, strict=True)):
            at, reach = drawing.error_bars([found[name][column] for name in shown], "median")
            places = [row + 0.27 * (place - 1) for row in range(len(shown))]
            some.barh(places, at, 0.25, xerr=reach, color=_COLOURS[part], label=part, error_kw={"lw": 0.8})
        some.set_yticks(range(len(shown)), shown)
        some.invert_yaxis()
        some.set(title="Load and executions (figure 1)", xlabel="time [ms]", xscale="log")
        drawing.plain_logarithmic(some.xaxis)
        names = sorted(found, key=lambda name: _PAPER[name].load_ms if name in _PAPER else 0.0)
        known = [(name, row) for row, name in enumerate(names) if name in _PAPER]
        for part, column in (("load", "load_ms"), ("later execution", "execution_ms")):
            at, reach = drawing.error_bars([found[name][column] for name in names], "median")
            dots = {"markersize": 4, "color": _COLOURS[part], "capsize": 2}
            every.errorbar(at / 1e3, range(len(names)), xerr=reach / 1e3, fmt="o", **dots)
            said = [getattr(_PAPER[name], column) / 1e3 for name, _ in known]
            every.plot(said, [row for _, row in known], "*", color=_COLOURS[part], alpha=0.6)
        (stars,) = every.plot([], [], "*", color="#555555")
        every.set_yticks(range(len(names)), names, fontsize=7)
        every.set(title="Latency and cost (figure 3, CPU)", xlabel="time [s]", xscale="log")
        drawing.plain_logarithmic(every.xaxis)
        rate = _CPU_USD_PER_H / 3600 * 1e6
        cost = every.secondary_xaxis("top", functions=(lambda s: s * rate, lambda usd: usd / rate))
        cost.set_xlabel(rf"cost [µ\$] at {_CPU_USD_PER_H} \$/h")
        drawing.plain_logarithmic(cost.xaxis)
        drawing.legend_below(picture, some, **{"paper, m5.large": stars})
        cycles = min(one["cycles"] for one in found.values())
        drawing.caption(
            picture,
            f"Medians and ranges of {cycles} cycles, onnxruntime, one thread; stars: the paper",
        )
        return picture


def _likeness(summary: Mapping[str, Any]) -> tuple[Target, ...]:
    """Targets for the rank correlation of the networks' times with those of the paper."""
    both = {name: one for name, one in summary.items() if name in _PAPER}
    if len(both) < 2:
        return ()
    sizes = rank_correlation([one["file_mb"] for one in both.values()], medians(both, "load_ms"))
    return tuple(
        Target.at_least(
            f"rank correlation of {what} times with the paper's",
            rank_correlation(medians(both, column), [getattr(_PAPER[name], column) for name in both]),
            0.5,
            f"of loads with files: {sizes:.2f}; 0.34 in the paper" if what == "load" else "",
            3,
        )
        for what, column in (("load", "load_ms"), ("execution", "execution_ms"))
    )


def _prices() -> tuple[tuple[str, float, str], ...]:
    """The calculations of section III-D: quantity, its value, the paper's value."""
    per_gb, hour = _CPU_USD_PER_H / _CPU_GB, _GPU_USD_PER_H / _CPU_USD_PER_H
    load_s = mean(one.load_ms for one in _PAPER.values()) / 1e3
    execution_s = mean(one.execution_ms for one in _PAPER.values()) / 1e3
    return (
        ("an hour of a p2.xlarge over one of an m5.large", hour, "roughly 10"),
        ("the same per GB of system memory", _GPU_USD_PER_H / _GPU_GB / per_gb, "1.2"),
        ("the same per GB, GPU memory over system memory", _GPU_USD_PER_H / _GPU_OWN_GB / per_gb, "6.6"),
        ("seconds of a p2.xlarge for the paper's mean load", load_s / hour, f"{execution_s:.2f} (execution)"),
    )


def _micro_usd(*times_ms: float) -> str:
    return ", ".join(f"{ms / 3.6e6 * _CPU_USD_PER_H * 1e6:.1f}" for ms in times_ms)
