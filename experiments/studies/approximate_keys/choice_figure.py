"""Choice of the approximation from shadow traffic, against a manual choice and the best in hindsight.

Generated flows change twice: first the greetings of services are padded to random sizes, then the handshakes
instead. After each change, other packets distinguish the applications. One cache chooses among all
candidates. For comparison, each candidate has its own cache with the same budget. The best of these in a
phase is only known in hindsight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from random import Random
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
from nearsight.common.result_cache.approximations import (
    Approximation,
    Vector,
    every,
    maxpool,
    prefix,
    quantize,
    suffix,
)
from nearsight.common.result_cache.budget import Budget
from nearsight.common.result_cache.selection import Candidates, ladders
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, mean_and_spread, mean_in_words, nested, values
from nearsight.experiments.studies.approximate_keys.traffic import Traffic, flows

CHOSEN, BY_HAND = "chosen", "prefix(10)"
TARGET, BAND = 0.01, 0.003
"""Target share of wrong lookups, and its tolerance in a phase."""
PACKETS = 50
_HANDSHAKE, _GREETING = 5, 10
GIVEN: tuple[tuple[Approximation, ...], ...] = (
    (prefix(10),),
    *(ladder for ladder in ladders(prefix(5), prefix(10), prefix(20)) if ladder[0].name != BY_HAND),
    (prefix(10) | quantize(32),),
    (suffix(PACKETS - _HANDSHAKE) | prefix(_GREETING - _HANDSHAKE),),
    (suffix(10),),
    (every(5),),
    (every(10),),
    (maxpool(10),),
)
"""The paper's functions. The first is the one that it recommends; the suffix with a prefix selects the
greeting."""
PHASES = ("fitted flows", "greetings padded", "handshakes padded")
_PHASE, _WINDOW, _SIZE, _RUNS = 400_000, 20_000, 10_000, 4
_COLOURS = ("#1f6f8b", "#c2571a", "#7a9e3b", "#8a5a3a", "#24415c", "#e0a33a", "#9fc3d0", "#b9a0c9", "#8a8a8a")
"""Colours of the choosing cache and of the candidates; they repeat if many were chosen."""


class Figure(Experiment):
    """Served lookups of a cache that chooses its approximation, compared with a fixed one."""

    name: ClassVar[str] = "approximate-choice"
    source: ClassVar[str] = "beyond approximate-key caching, 3"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per network."""
        return [{"run": run} for run in range(1 if options.smoke else _RUNS)]

    def run(self, options: RunOptions, run: int) -> Iterator[Row]:
        """Play the flows through the choosing cache, and through one per candidate; one row per window."""
        phase, window, size = (6_000, 2_000, 400) if options.smoke else (_PHASE, _WINDOW, _SIZE)
        traffic = padded(phase, options.rng(self.name, run))
        players = {CHOSEN: Candidates(*GIVEN)}
        for candidate in GIVEN[:3] if options.smoke else GIVEN:
            players[Candidates(candidate).names[0]] = Candidates(candidate)
        for keys, candidates in players.items():
            for place, became in enumerate(_played(candidates, traffic, window, size, seed=run)):
                yield {"run": run, "keys": keys, "phase": place * window // phase, "window": place, **became}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``phases.<phase>.<keys>``, ``all.<keys>``, ``best.<phase>`` in hindsight, and ``changes``."""
        chosen = grouped(rows, "keys")[CHOSEN]
        phases = nested(rows, ("phase", "keys"), _shares)
        return {
            "phases": phases,
            "all": nested(rows, ("keys",), _shares),
            "best": {phase: _best(found) for phase, found in phases.items()},
            "changes": mean_and_spread([float(_changes(one)) for one in grouped(chosen, "run").values()]),
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Close to the best in hindsight per phase, and better than any fixed candidate over all."""
        phases, of_all, best = summary["phases"], summary["all"], summary["best"]
        text = "served, relative to the best in hindsight, least of any phase, at least 0.9"
        least = min(_relative(found, best[phase]) for phase, found in phases.items())
        notes = ", ".join(f"{PHASES[int(phase)]}: {name}" for phase, name in best.items())
        yield Target.at_least(text, least, 0.9, notes, 3)
        fixed = _best(of_all)
        text = "served, relative to the best fixed candidate, all phases, at least 1"
        yield Target.at_least(text, _relative(of_all, fixed), 1.0, fixed, 3)
        text = f"served, relative to {BY_HAND}, in the phase for which it was chosen, at least 1"
        yield Target.at_least(text, _relative(phases["0"], BY_HAND), 1.0, digits=3)
        wrong = [float(found[CHOSEN]["wrong"][end]) for found in phases.values() for end in ("min", "max")]
        text = f"wrong lookups, distance of any phase from {percent(TARGET)}, at most {BAND:g}"
        yield Target.at_most(text, max(abs(one - TARGET) for one in wrong), BAND, digits=4)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per cache, those that serve most first; served and wrong shares by phase."""
        of_all = summary["all"]
        parts = {PHASES[int(phase)]: found for phase, found in summary["phases"].items()} | {"all": of_all}
        for name in sorted(of_all, key=lambda name: -of_all[name]["served"]["mean"]):
            line: dict[str, object] = {"keys": name}
            for title, part in parts.items():
                line[f"served, {title}"] = mean_in_words(part[name]["served"], 3)
                line[f"wrong, {title}"] = f"{part[name]['wrong']['mean']:.4f}"
            yield line

    def draw(self, results: Results) -> drawing.Picture:
        """Draw served and wrong shares over time, and the choices."""
        picture = drawing.new_picture(12.6, 4.8)
        served, wrong, choices = picture.subplots(1, 3, width_ratios=[1.2, 1.0, 1.0])
        windows = grouped(results.rows, "keys")[CHOSEN]
        lines = dict.fromkeys((CHOSEN, BY_HAND, *results.metrics["best"].values()))
        names = dict.fromkeys((*lines, *(row["choice"] for row in windows)))
        colours = dict(zip(names, _COLOURS * 2, strict=False))
        _draw_windows(served, results.rows, {name: colours[name] for name in lines}, "served")
        served.set(title="Served through two changes", ylabel="served share of the lookups", ylim=(0, None))
        _draw_windows(wrong, results.rows, {name: colours[name] for name in lines}, "wrong")
        wrong.axhspan(TARGET - BAND, TARGET + BAND, color=_COLOURS[0], alpha=0.12, zorder=0)
        wrong.set(title="Wrong answers, budget of 1 %", ylabel="wrong share of the lookups", ylim=(0, None))
        _draw_choices(choices, windows, colours)
        others = {name: Patch(color=colours[name]) for name in names if name not in lines}
        drawing.legend_below(picture, served, 4, **others)
        drawing.caption(
            picture,
            "Generated flows, LRU cache of 10,000 results, windows of 20,000 lookups, mean of the runs; "
            "compared with the manual choice, and with the best of each phase in hindsight",
        )
        return picture


def padded(phase: int, rng: np.random.Generator) -> Traffic:
    """Generate equal numbers of normal flows, of padded greetings, and of padded handshakes."""
    traffic = flows(len(PHASES) * phase, rng, packets_kept=PACKETS)
    packets = traffic.packets
    for place, (first, last) in enumerate(((_HANDSHAKE, _GREETING), (0, _HANDSHAKE)), 1):
        part = packets[place * phase : (place + 1) * phase, first:last]
        part[:] = rng.integers(60, 1460, part.shape)
    return traffic


def _played(
    candidates: Candidates[Vector | Sequence[float]], traffic: Traffic, window: int, size: int, *, seed: int
) -> Iterator[dict[str, float | str]]:
    """Play the lookups; yield the counts of each window."""
    truth = -1
    cache = ApproximateKeyCache(
        candidates, lambda _: truth, budget=Budget(error=TARGET), size=size, rng=Random(seed)
    )
    classes = traffic.applications.tolist()
    for start in range(0, len(classes), window):
        before, wrong = cache.counts.served, 0
        for place in range(start, start + window):
            truth = classes[place]
            wrong += cache.lookup(traffic.packets[place]) != truth
        choice = cache.choice
        yield {
            "lookups": window,
            "served": cache.counts.served - before,
            "wrong": wrong,
            "choice": choice.name if choice is not None else "",
        }


def _shares(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Shares of the lookups, as mean and spread over the runs."""
    runs = grouped(rows, "run").values()
    return {
        name: mean_and_spread([sum(values(one, name)) / sum(values(one, "lookups")) for one in runs])
        for name in ("served", "wrong")
    }


def _relative(found: Mapping[str, Any], fixed: str) -> float:
    """Served share of the choosing cache, relative to that of a fixed candidate."""
    return float(found[CHOSEN]["served"]["mean"] / max(1e-9, found[fixed]["served"]["mean"]))


def _best(found: Mapping[str, Any]) -> str:
    """The fixed candidate that serves most among those within the budget."""
    fixed = [name for name in found if name != CHOSEN]
    kept = [name for name in fixed if found[name]["wrong"]["mean"] <= TARGET + BAND]
    return max(kept or fixed, key=lambda name: float(found[name]["served"]["mean"]))


def _changes(windows: Sequence[StoredRow]) -> int:
    """Number of changes of the choice between windows."""
    return sum(one["choice"] != then["choice"] for one, then in pairwise(windows))


def _draw_windows(axes: Axes, rows: Sequence[StoredRow], names: Mapping[str, str], quantity: str) -> None:
    by_keys = grouped(rows, "keys")
    phase = float(rows[0]["lookups"]) * (1 + max(values(rows, "window"))) / len(PHASES) / 1e6
    for name, colour in names.items():
        found: dict[float, list[float]] = {}
        for row in by_keys[name]:
            at = (float(row["window"]) + 0.5) * float(row["lookups"]) / 1e6
            found.setdefault(at, []).append(float(row[quantity]) / float(row["lookups"]))
        front = name == CHOSEN
        axes.plot(
            list(found),
            [np.mean(one) for one in found.values()],
            color=colour,
            label=name,
            linewidth=2.0 if front else 1.2,
            zorder=3 if front else 2,
        )
    drawing.phases(axes, PHASES, phase)
    axes.set_xlabel("lookups [millions]")


def _draw_choices(axes: Axes, rows: Sequence[StoredRow], colours: Mapping[str, str]) -> None:
    """Draw a bar per run; colours show the chosen approximation."""
    width = float(rows[0]["lookups"]) / 1e6
    for run, windows in grouped(rows, "run").items():
        at = 0.0
        for name, same in groupby(row["choice"] for row in windows):
            length = len(list(same)) * width
            axes.barh(int(run), length, left=at, height=0.7, color=colours[name])
            at += length
    axes.set_yticks(sorted({int(row["run"]) for row in rows}))
    axes.grid(visible=False, axis="y")
    axes.set(title="Chosen approximation", xlabel="lookups [millions]", ylabel="run", xlim=(0, None))
