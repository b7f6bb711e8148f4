"""Budgets of errors or inferences against fixed back-offs: under shifts, and at equal inferences.

In the first part, generated flows whose popular applications change twice are played through caches with a
budget and with fixed back-offs. Each window of lookups shows the share of wrong answers. In the second part,
flows with a constant popularity are played with many back-offs and budgets, so that errors can be compared at
equal inferences. It also tests refinement, in which coarse keys with conflicting results are refined to
longer prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.result_cache.result_cache import Refresh, ResultCache
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, leaves, mean_and_spread, nested, values, zipf
from nearsight.experiments.studies.approximate_keys.traffic import APPLICATIONS, POPULARITY, flows

SHIFT, TRADE = "shift", "trade"
BACK_OFF, ERROR, INFERENCES = "back-off", "error", "inferences"
"""Parameters of a cache: a fixed back-off, a budget of errors, or a budget of inferences."""
TARGET, BAND = 0.01, 0.003
"""Target share of wrong lookups, and its tolerance in a phase."""
_RATE, _RATE_BAND = 0.8, 0.01
"""Tested budget of inferences, as a share of the lookups, and its tolerance in a phase."""
_OFF = 0.001
"""Largest error of the cache's own estimate of its errors, as a share of the lookups."""
_FIXED = 1.85
"""The back-off at which 1 % of the lookups of the first phase are wrong."""
_BETAS = (1.05, 1.15, 1.3, 1.5, 1.8, 2.2, 3.0, 5.0)
_ERRORS = (0.005, 0.01, 0.02, 0.04, 0.08)
_PREFIXES = {"prefix(5)": (5,), "prefix(10)": (10,), "prefix(20)": (20,), "prefix(5, 10, 20)": (5, 10, 20)}
"""Number of packets in the keys; several numbers: refinement from coarse to fine."""
PHASES = ("the fitted popularity", "other applications", "many applications")
_PHASE, _WINDOW, _FLOWS, _SIZE, _RUNS = 1_000_000, 100_000, 500_000, 10_000, 3
_COLOURS = {
    (ERROR, TARGET): "#1f6f8b",
    (INFERENCES, _RATE): "#7a9e3b",
    (BACK_OFF, _FIXED): "#c2571a",
    (BACK_OFF, 2.5): "#8a5a3a",
}
"""Parameters of the caches in the first part, and their colours."""
_LINES = dict(zip(_PREFIXES, drawing.SEQUENCE, strict=True))

Packets = NDArray[np.int16]


class Figure(Experiment):
    """A target error of 1 % through two shifts of popularity, and errors at equal inferences."""

    name: ClassVar[str] = "approximate-budget"
    source: ClassVar[str] = "beyond approximate-key caching, 5"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """For each network: one cell per cache for the shifts, and one per kind of keys."""
        runs = range(1 if options.smoke else _RUNS)
        return [
            *({"part": SHIFT, "run": run, "given": given} for run in runs for given in _COLOURS),
            *({"part": TRADE, "run": run, "keys": keys} for run in runs for keys in _PREFIXES),
        ]

    def run(
        self,
        options: RunOptions,
        part: str,
        run: int,
        keys: str = "prefix(10)",
        given: tuple[str, float] = ("", 0.0),
    ) -> Iterator[Row]:
        """Play the flows of a network; one row per window, kind of keys and parameter of the cache.

        In the part with shifts, the cache has the parameter ``given`` and keys of 10 packets. In the other
        part, one cache per parameter is played with these ``keys``.
        """
        rng = options.rng(self.name, part, run)
        if part == SHIFT:
            phase, window, size = (20_000, 5_000, 400) if options.smoke else (_PHASE, _WINDOW, _SIZE)
            usual = zipf(APPLICATIONS, POPULARITY)
            phases = (usual, rng.permutation(usual), zipf(APPLICATIONS, 0.5))
            traffic = flows(len(phases) * phase, rng, phases=phases, packets_kept=10)
            all_given: tuple[tuple[str, float], ...] = (given,)
        else:
            phase, size = (20_000, 400) if options.smoke else (_FLOWS, _SIZE)
            window = phase
            traffic = flows(phase, rng, packets_kept=20)
            all_given = _trades(len(_PREFIXES[keys]), smoke=options.smoke)
        seen = _keys(traffic.packets, _PREFIXES[keys])
        classes = traffic.applications.tolist()
        for kind, value in all_given:
            cache: ResultCache[bytes, int] = ResultCache(_refresh(kind, value, run), size)
            of_play: Row = {"run": run, "part": part, "keys": keys, "given": kind, "value": value}
            for at, became in enumerate(_played(cache, seen, classes, window)):
                yield {**of_play, "phase": at * window // phase, "window": at, **became}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``shift.<given>.<phase>``, ``windows.<given>`` and ``trade.<keys>.<given>.<value>``."""
        parts = grouped(rows, "part")
        shift = [{**row, "cache": f"{row['given']} {row['value']}"} for row in parts[SHIFT]]
        return {
            "shift": nested(shift, ("cache", "phase"), _of_phase),
            "windows": nested(shift, ("cache",), _of_windows),
            "trade": nested(parts[TRADE], ("keys", "given", "value"), _of_phase),
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Budgets hold in all phases, a fixed back-off does not; the sequential test has no more errors."""
        shift, windows = summary["shift"], summary["windows"]

        def farthest(cache: str, quantity: str, target: float) -> float:
            ends = [float(one[quantity][end]) for one in shift[cache].values() for end in ("min", "max")]
            return max(abs(one - target) for one in ends)

        budget, fixed, rate = f"{ERROR} {TARGET}", f"{BACK_OFF} {_FIXED}", f"{INFERENCES} {_RATE}"
        text = (
            f"a budget of {percent(TARGET)} of the lookups: distance of any phase from it, at most {BAND:g}"
        )
        of_served = ", ".join(f"{one['wrong_of_served']['mean']:.4f}" for one in shift[budget].values())
        note = f"share of the served ones, by phase: {of_served}"
        yield Target.at_most(text, farthest(budget, "wrong", TARGET), BAND, note, 4)
        text = f"a back-off of {_FIXED}, which fits the first phase: largest distance, at least {BAND:g}"
        yield Target.at_least(text, farthest(fixed, "wrong", TARGET), BAND, digits=4)
        text = (
            f"windows of {_WINDOW:,} lookups within {100 * BAND:g} percentage points of the target, budget, "
            "without the first of each run: share, at least 0.9"
        )
        note = f"fixed back-off: {windows[fixed]['within']:.2f}"
        yield Target.at_least(text, windows[budget]["within"], 0.9, note)
        text = (
            f"a budget of {percent(_RATE)} inferences: distance of any phase from it, at most {_RATE_BAND:g}"
        )
        yield Target.at_most(text, farthest(rate, "inferences", _RATE), _RATE_BAND, digits=4)
        off = [abs(one["estimated"]["mean"] - one["wrong"]["mean"]) for one in shift[budget].values()]
        text = f"estimated minus true errors with the budget, largest of any phase, at most {_OFF:g}"
        yield Target.at_most(text, max(off), _OFF, digits=4)
        for keys, ratios in _ratios(summary["trade"]).items():
            if ratios:
                text = f"{keys}: errors over those of a fixed back-off at equal inferences, median at most 1"
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                yield Target.at_most(text, float(np.median(ratios)), 1.0, spread, 3)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per cache and phase, then one per kind of keys and budget."""
        for name, one in (
            *((f"{cache}, {PHASES[int(phase)]}", one) for cache, phase, one in leaves(summary["shift"], 2)),
            *((f"{keys}, {given} {value}", one) for keys, given, value, one in leaves(summary["trade"], 3)),
        ):
            yield {
                "cache": name,
                "wrong, of lookups": f"{one['wrong']['mean']:.4f}",
                "wrong, of served": f"{one['wrong_of_served']['mean']:.4f}",
                "estimated, of lookups": f"{one['estimated']['mean']:.4f}",
                "inferences": f"{one['inferences']['mean']:.4f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw errors and inferences through the shifts, and errors over inferences."""
        picture = drawing.new_picture(12.6, 4.6)
        errors, inferences, trade = picture.subplots(1, 3, width_ratios=[1.2, 1.0, 1.1])
        rows = grouped(results.rows, "part")[SHIFT]
        _draw_windows(errors, rows, "wrong")
        errors.axhspan(TARGET - BAND, TARGET + BAND, color="#1f6f8b", alpha=0.12, zorder=0)
        errors.set(
            title="Wrong answers through two shifts", ylabel="wrong share of the lookups", ylim=(0, None)
        )
        _draw_windows(inferences, rows, "inferences")
        inferences.set(
            title="Inferences through two shifts", ylabel="inferred share of the lookups", ylim=(0, 1.1)
        )
        _draw_trade(trade, results.metrics["trade"])
        drawing.legend_below(picture, inferences)
        drawing.caption(
            picture, "Generated flows, prefix(10), LRU cache of 10,000 results; bands: range of runs"
        )
        return picture


def _trades(levels: int, *, smoke: bool) -> tuple[tuple[str, float], ...]:
    """Parameters of the caches; refinement requires a budget."""
    betas, errors = (_BETAS[3:6], _ERRORS[1:3]) if smoke else (_BETAS, _ERRORS)
    budgets = tuple((ERROR, error) for error in errors)
    return budgets if levels > 1 else (*((BACK_OFF, beta) for beta in betas), *budgets)


def _refresh(kind: str, value: float, seed: int) -> Refresh:
    if kind == BACK_OFF:
        return AutoRefresh(value)
    return SequentialTest(Budget(error=value) if kind == ERROR else Budget(inferences=value), Random(seed))


def _keys(packets: Packets, prefixes: tuple[int, ...]) -> list[tuple[bytes, ...]]:
    """Keys of each flow, coarse to fine: the bytes of its first packets."""
    columns = []
    for prefix in prefixes:
        width = prefix * packets.itemsize
        data = np.ascontiguousarray(packets[:, :prefix]).tobytes()
        columns.append([data[at : at + width] for at in range(0, len(data), width)])
    return list(zip(*columns, strict=True))


def _played(
    cache: ResultCache[bytes, int], keys: Sequence[tuple[bytes, ...]], classes: Sequence[int], window: int
) -> Iterator[dict[str, float]]:
    """Play the lookups; yield the counts of each window."""
    for start in range(0, len(keys), window):
        before, wrong = cache.counts.served, 0
        for of_flow, truth in zip(keys[start : start + window], classes[start : start + window], strict=True):
            *coarser, key = cache.path(of_flow, 0.0) if len(of_flow) > 1 else of_flow
            entry = cache.find(key, 0.0)
            if entry is None:
                cache.learn(key, truth, 0.0, coarser)
            else:
                wrong += entry.value != truth
        served = cache.counts.served - before
        yield {
            "lookups": window,
            "served": served,
            "wrong": wrong,
            "estimated": round(cache.recent_errors.share, 6),
            "bound": round(cache.recent_errors.bound, 6),
            "alarm": int(cache.recent_errors.exceeds(TARGET)),
        }


def _of_phase(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Shares over all windows of a phase, as mean and spread over the runs."""
    found: dict[str, list[float]] = {"wrong": [], "wrong_of_served": [], "inferences": [], "estimated": []}
    for windows in grouped(rows, "run").values():
        lookups, served, wrong = (sum(values(windows, name)) for name in ("lookups", "served", "wrong"))
        found["wrong"].append(wrong / lookups)
        found["wrong_of_served"].append(wrong / max(1.0, served))
        found["inferences"].append(1.0 - served / lookups)
        found["estimated"].append(float(np.mean(values(windows, "estimated"))))
    return {name: mean_and_spread(one) for name, one in found.items()}


def _of_windows(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Share of windows close to the target, and largest distance; without the first window of each run."""
    of_all = [row for row in rows if row["window"] != "0"]
    errors = np.array(values(of_all, "wrong")) / np.array(values(of_all, "lookups"))
    off = np.abs(errors - TARGET)
    return {
        "within": round(float(np.mean(off <= BAND)), 4),
        "farthest": round(float(off.max()), 5),
        "alarms": round(float(np.mean(values(of_all, "alarm"))), 4),
    }


def _ratios(trade: Mapping[str, Any]) -> dict[str, list[float]]:
    """Errors of each budget over those of a back-off with equal inferences.

    Refined keys have no back-offs of their own. They are compared with the best of the other keys.
    """
    lines = {
        keys: sorted((one["inferences"]["mean"], one["wrong"]["mean"]) for one in caches[BACK_OFF].values())
        for keys, caches in trade.items()
        if BACK_OFF in caches
    }
    ratios: dict[str, list[float]] = {}
    for keys, caches in trade.items():
        rivals = [lines[keys]] if keys in lines else list(lines.values())
        ratios[keys] = []
        for one in caches[ERROR].values():
            x, y = one["inferences"]["mean"], one["wrong"]["mean"]
            there = [line for line in rivals if line[0][0] <= x <= line[-1][0]]
            fixed = [float(np.interp(x, *np.array(line).T)) for line in there]
            if fixed:
                ratios[keys].append(y / min(fixed))
    return ratios


def _draw_windows(axes: Axes, rows: Sequence[StoredRow], quantity: str) -> None:
    phase = float(rows[0]["lookups"]) * (1 + max(values(rows, "window"))) / len(PHASES) / 1e6
    for (given, value), colour in _COLOURS.items():
        if (quantity, given) == ("wrong", INFERENCES):
            continue
        found: dict[float, list[float]] = {}
        for row in rows:
            if (row["given"], float(row["value"])) == (given, value):
                lookups, served, wrong = (float(row[name]) for name in ("lookups", "served", "wrong"))
                share = wrong / lookups if quantity == "wrong" else 1.0 - served / lookups
                found.setdefault((float(row["window"]) + 0.5) * lookups / 1e6, []).append(share)
        name = (
            f"back-off {value:g}"
            if given == BACK_OFF
            else f"budget of {percent(value)} {given}s".replace("ss", "s")
        )
        axes.plot(list(found), [np.mean(one) for one in found.values()], color=colour, label=name)
        least, most = ([end(one) for one in found.values()] for end in (min, max))
        axes.fill_between(list(found), least, most, color=colour, alpha=0.25, linewidth=0)
    drawing.phases(axes, PHASES, phase)
    axes.set_xlabel("lookups [millions]")


def _draw_trade(axes: Axes, trade: Mapping[str, Any]) -> None:
    for keys, caches in trade.items():
        for given, look in ((BACK_OFF, "o:"), (ERROR, "s-")):
            points = sorted(
                (one["inferences"]["mean"], one["wrong"]["mean"]) for one in caches.get(given, {}).values()
            )
            if points:
                x, y = zip(*points, strict=True)
                label = f"{keys}, {'back-off' if given == BACK_OFF else 'budget'}"
                axes.plot(x, y, look, color=_LINES[keys], markersize=3.5, linewidth=1.2, label=label)
    axes.set(title="Errors at equal inferences", xlabel="inferred share of the lookups", yscale="log")
    axes.set_ylabel("wrong share of the lookups")
    axes.grid(visible=True, axis="both")
    axes.legend(fontsize=7, loc="lower left")
