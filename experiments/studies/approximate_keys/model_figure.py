"""Simulated caches against the equations of approximate-key caching (its section IV).

Streams of independent lookups are played through the production cache, with ideal and with LRU replacement.
Means with 95 % intervals over repeated streams are compared with equations 7 to 12. The classes are chosen so
that the variance of a sequence is finite, which requires max p < 1 / back-off². Otherwise the result for an
endless stream does not apply to a stream of practical length. For that case, single keys are compared with an
exact recursion over the same number of lookups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.model import Prediction, finite_horizon, ideal_hits, lru_hits, predict
from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, values, zipf
from nearsight.experiments.studies.approximate_keys.traffic import play

BETAS = (1.3, 1.5, 2.0, 3.0)
SKEWS = (0.7, 1.1)
"""Exponents of Zipf's law for the popularity of keys."""
EQUAL, ONE_LARGER = "equal", "larger"
"""Classes of a key: all equally likely, or one twice as likely as the others."""
IDEAL, LRU, SINGLE = "ideal", "lru", "one key"
_HEAVY_KEY = "heavy"
_HEAVY = {"0.6, 0.4": 1.5, "0.9, 0.1": 1.3, "0.5, 0.3, 0.2": 2.0, "0.5, 0.5": 3.0}
"""Classes of single keys → back-off at which their sequences have infinite variance."""
_BELOW = 0.6
"""Largest probability of a class, as a share of 1 / back-off²."""
_CONFIDENCE = 0.95
_COLOURS = {IDEAL: "#1f6f8b", LRU: "#c2571a", SINGLE: "#24415c"}
_QUANTITIES = {"inferences": "inferences", "errors": "wrong answers"}


class Figure(Experiment):
    """Inferences and errors of simulated caches against the equations: ideal, LRU, and single heavy keys."""

    name: ClassVar[str] = "approximate-model"
    source: ClassVar[str] = "approximate-key caching, 4"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per popularity, classes and back-off, and one per heavy key."""
        betas = BETAS[1:2] if options.smoke else BETAS
        return [
            *(
                {"skew": skew, "classes": classes, "beta": beta}
                for skew in SKEWS
                for classes in (EQUAL, ONE_LARGER)
                for beta in betas
            ),
            *({"part": _HEAVY_KEY, "place": place} for place in range(len(_HEAVY))),
        ]

    def run(self, options: RunOptions, **parameters: Any) -> Iterator[Row]:
        """Play streams; one row per stream and replacement, with the values of the equations."""
        cell = self.key(**parameters)
        rng = options.rng(self.name, cell)
        if "part" in parameters:
            yield from _heavy_key(cell, parameters["place"], rng, 100 if options.smoke else 400)
            return
        beta = float(parameters["beta"])
        keys, size, lookups, streams = (200, 40, 4_000, 8) if options.smoke else (300, 60, 90_000, 20)
        q = zipf(keys, float(parameters["skew"]))
        p = _classes(parameters["classes"], beta)
        refresh = AutoRefresh(beta)
        said = {
            replacement: predict(q, [p] * keys, hits, refresh)
            for replacement, hits in ((IDEAL, ideal_hits(q, size)), (LRU, lru_hits(q, size)))
        }
        for number in range(streams):
            drawn = rng.choice(keys, lookups, p=q), rng.choice(len(p), lookups, p=p)
            stream = list(zip(*(one.tolist() for one in drawn), strict=True))
            for replacement, only in ((IDEAL, range(size)), (LRU, None)):
                cache: ResultCache[int, int] = ResultCache(refresh, size, only=only)
                play(cache, stream[: lookups // 3])  # until sequences have their full length
                played = _played(cache, stream[lookups // 3 :], said[replacement])
                yield {**_of(cell, replacement, beta, number), **played}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``comparisons``: mean, 95 % interval and value of the equations, by cell and replacement."""
        return {
            "comparisons": {
                f"{cell} {replacement}": {
                    "replacement": replacement,
                    "beta": float(group[0]["beta"]),
                    **{name: _compared(group, name) for name in _QUANTITIES},
                }
                for cell, of_cell in grouped(rows, "cell").items()
                for replacement, group in grouped(of_cell, "replacement").items()
            }
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The number of means outside their interval is within chance."""
        from scipy.stats import binom  # noqa: PLC0415  takes long to import

        for replacement in (IDEAL, LRU, SINGLE):
            found = [
                one[name]
                for one in summary["comparisons"].values()
                for name in _QUANTITIES
                if one["replacement"] == replacement
            ]
            if found:
                outside = sum(abs(one["off"]) > one["half_width"] for one in found)
                allowed = int(binom.ppf(0.99, len(found), 1 - _CONFIDENCE))
                widest = max(abs(one["off"]) for one in found)
                of_all = f"{replacement}: of {len(found)} means outside their 95 % interval"
                text, note = f"{of_all}; up to {allowed} by chance", f"largest difference {widest:.4f}"
                yield Target(text, outside, outside <= allowed, note)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per cell and replacement."""
        for name, one in summary["comparisons"].items():
            line: dict[str, object] = {"stream": name}
            for quantity in _QUANTITIES:
                for title, part in (("", "mean"), (" ± 95 %", "half_width"), (", equations", "said")):
                    line[f"{quantity}{title}"] = f"{one[quantity][part]:.4f}"
            yield line

    def draw(self, results: Results) -> drawing.Picture:
        """Draw simulated over computed values; one panel for inferences, one for errors."""
        picture = drawing.new_picture(9.0, 4.4)
        for axes, (quantity, name) in zip(picture.subplots(1, 2), _QUANTITIES.items(), strict=True):
            for replacement, colour in _COLOURS.items():
                found = [
                    one[quantity]
                    for one in results.metrics["comparisons"].values()
                    if one["replacement"] == replacement
                ]
                axes.errorbar(
                    [one["said"] for one in found],
                    [one["mean"] for one in found],
                    [one["half_width"] for one in found],
                    fmt="o",
                    ms=3.5,
                    capsize=2,
                    color=colour,
                    label=replacement,
                )
            end = max(axes.get_xlim()[1], axes.get_ylim()[1])
            axes.plot([0, end], [0, end], color="#8a8a8a", linewidth=0.8, zorder=0)
            axes.set(title=f"Share of {name}", xlabel="equations", ylabel="simulated, 95 % intervals")
            axes.grid(visible=True, axis="both")
        drawing.legend_below(picture, picture.axes[0])
        return picture


def _classes(kind: str, beta: float) -> np.ndarray:
    """Class probabilities whose largest is below 1 / beta²."""
    largest = _BELOW / beta**2
    if kind == EQUAL:
        count = math.ceil(1 / largest)
        return np.full(count, 1 / count)
    others = math.ceil(2 * (1 - largest) / largest)
    return np.array([largest, *[(1 - largest) / others] * others])


def _heavy_key(cell: str, place: int, rng: np.random.Generator, streams: int) -> Iterator[Row]:
    classes, beta = list(_HEAVY.items())[place]
    lookups = 1_000
    p, refresh = [float(one) for one in classes.split(", ")], AutoRefresh(beta)
    said = finite_horizon(p, refresh, lookups)
    for number in range(streams):
        stream = [(0, truth) for truth in rng.choice(len(p), lookups, p=p).tolist()]
        yield {**_of(cell, SINGLE, beta, number), **_played(ResultCache(refresh, 1), stream, said)}


def _of(cell: str, replacement: str, beta: float, number: int) -> dict[str, str | float]:
    return {"cell": cell, "replacement": replacement, "beta": beta, "stream": number}


def _played(
    cache: ResultCache[int, int], stream: Sequence[tuple[int, int]], said: Prediction
) -> dict[str, float]:
    """Play a stream: its shares of inferences and of wrong answers, and those of the equations."""
    served_before = cache.counts.served
    wrong = play(cache, stream)
    served = cache.counts.served - served_before
    return {
        "inferences": (len(stream) - served) / len(stream),
        "errors": wrong / len(stream),
        "said_inferences": said.inferences,
        "said_errors": said.errors,
    }


def _compared(rows: Sequence[StoredRow], quantity: str) -> dict[str, float]:
    from scipy.stats import t  # noqa: PLC0415  takes long to import

    found = np.array(values(rows, quantity))
    said = float(rows[0][f"said_{quantity}"])
    half = t.ppf((1 + _CONFIDENCE) / 2, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found))
    return {
        "mean": round(float(found.mean()), 6),
        "half_width": round(float(half), 6),
        "said": round(said, 6),
        "off": round(float(found.mean()) - said, 6),
    }
