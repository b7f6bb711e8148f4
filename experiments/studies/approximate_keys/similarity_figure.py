"""Figure 6 of approximate-key caching: lookups, hits and errors of similarity caches and of ours.

All caches hold the K most popular results of the same generated history. They answer the same subsequent
flows in blocks, alternating between the caches. Only the lookup is timed: key and dictionary, or search and
vote. Insertion into an immutable index means a rebuild.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.result_cache.approximations import identity, prefix
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import (
    grouped,
    leaves,
    median_and_range,
    median_in_words,
    nested,
    values,
)
from nearsight.experiments.studies.approximate_keys.similarity import (
    ComparedCache,
    keys,
    similarity_caches,
    vote,
)
from nearsight.experiments.studies.approximate_keys.traffic import flows

LOOKUPS = {1_000: 2_000, 10_000: 1_000, 100_000: 400}
"""Number of lookups by K; with many results some libraries are slow."""
EXACT, OURS, PEER = "exact", "prefix(10)", "BallTree"
_SMALLER = (0.5, 1.0)
"""Other values of epsilon, for the BallTree."""
_HISTORY, _BLOCK, _INSERTIONS = 500_000, 50, 3
_LARGEST_PACKET = 1460.0
_BETA = 1.5
_COLOURS = {
    EXACT: "#8a8a8a",
    OURS: "#7a9e3b",
    PEER: "#c2571a",
    "lshashpy3": "#e0a33a",
    "FALCONN": "#1f6f8b",
    "gptcache": "#24415c",
}


class Figure(Experiment):
    """Lookup time, hits and errors of approximate keys, BallTree, lshashpy3, FALCONN and gptcache."""

    name: ClassVar[str] = "approximate-similarity"
    source: ClassVar[str] = "approximate-key caching, 5"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per size of the cache."""
        return [{"size": size} for size in ((100, 300) if options.smoke else tuple(LOOKUPS))]

    def run(self, options: RunOptions, size: int) -> Iterator[Row]:
        """Fill the caches and look up flows; one row per cache and block of lookups."""
        pin_threads()
        history, lookups = (5_000, 100) if options.smoke else (_HISTORY, LOOKUPS[size])
        traffic = flows(history + lookups, options.rng(self.name))
        labels = traffic.applications
        before, asked = traffic.packets[:history], traffic.packets[history:]
        popular = _popular(before, size)
        inputs = before[popular] / _LARGEST_PACKET
        known = labels[:history].tolist()
        with TemporaryDirectory(prefix="nearsight-similarity-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the imported libraries
            compared = {
                EXACT: _timed_us(keys, identity(), AutoRefresh(math.inf), before, known, size),
                OURS: _timed_us(keys, prefix(10), AutoRefresh(_BETA), before, known, size),
            }
            for name, (build, command) in similarity_caches(Path(folder)).items():
                try:
                    build(inputs[:_BLOCK], labels[popular[:_BLOCK]]).close()  # exclude the time of imports
                except ImportError as error:
                    yield {**_EMPTY, "size": size, "cache": name, "note": f"{error}; {command}"}
                else:
                    compared[name] = _timed_us(build, inputs, labels[popular])
            found = _measured(compared, asked, labels[history:].tolist())
            for name, (cache, build_us) in compared.items():
                raw = before[popular[:_INSERTIONS]]
                inserted = [
                    _timed_us(cache.insert, x, 0)[1]
                    for x in (raw if name in (EXACT, OURS) else inputs[:_INSERTIONS])
                ]
                whole: Row = {
                    "size": size,
                    "cache": name,
                    "build_ms": build_us / 1e3,
                    "insert_us": float(np.median(inserted)),
                }
                cache.close()
                for place, one in enumerate(found[name]):
                    yield {**_EMPTY, **whole, "block": place, **one}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``sizes.<K>.<cache>``: shares of the lookups, and times; ``times_faster.<K>``; ``not_measured``."""
        measured = [row for row in rows if not row["note"]]
        return {
            "sizes": nested(measured, ("size", "cache"), _summary),
            "times_faster": {
                size: median_and_range(_ratios(grouped(group, "cache")))
                for size, group in grouped(measured, "size").items()
            },
            "not_measured": {row["cache"]: row["note"] for row in rows if row["note"]},
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Errors as in the paper, and speed of lookups at the largest size."""
        for size, caches in summary["sizes"].items():
            ours, peer = (f"K = {int(size):,}, {name}: wrong share of" for name in (OURS, PEER))
            wrong, note = caches[OURS]["wrong"], _in_words(caches[OURS])
            yield Target.at_most(f"{ours} the lookups, under 2 % in the paper", wrong, 0.02, note)
            yield Target.at_most(f"{ours} its answers, under 2 % as well", _of_answers(caches[OURS]), 0.02)
            wrong, note = _of_answers(caches[PEER]), _in_words(caches[PEER])
            yield Target.at_least(f"{peer} its answers, over 65 % in the paper", wrong, 0.65, note)
        largest = list(summary["times_faster"])[-1]
        ratio = summary["times_faster"][largest]
        text = f"K = {int(largest):,}: a lookup of {OURS} is at least 1,000 times faster than in a BallTree"
        spread = f"blocks {ratio['min']:.0f} to {ratio['max']:.0f}"
        yield Target.at_least(text, ratio["median"], 1000, spread)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per size and cache."""
        for size, name, one in leaves(summary["sizes"], 2):
            yield {
                "K": f"{int(size):,}",
                "cache": name,
                "answered": f"{one['answered']:.3f}",
                "wrong": f"{one['wrong']:.4f}",
                "of answers": f"{_of_answers(one):.3f}",
                "lookup µs": median_in_words(one["lookup_us"], 1),
                "insert µs": f"{one['insert_us']:,.1f}",
                "build ms": f"{one['build_ms']:,.0f}",
            }
        for name, note in summary["not_measured"].items():
            yield {"cache": name, "answered": note}

    def draw(self, results: Results) -> drawing.Picture:
        """Draw lookup times, insertion times, and hits with their errors, for each size."""
        sizes = results.metrics["sizes"]
        picture = drawing.new_picture(12.6, 4.2)
        lookup, insert, hits = picture.subplots(1, 3, width_ratios=[1.0, 1.0, 1.3])
        names = [name for name in _COLOURS if any(name in caches for caches in sizes.values())]
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            colour = _COLOURS[name]
            found = [(at, caches[name]) for at, caches in enumerate(sizes.values()) if name in caches]
            where = [at + (place - (len(names) - 1) / 2) * width for at, _ in found]
            middle, reach = drawing.error_bars([one["lookup_us"] for _, one in found], "median")
            lookup.bar(
                where, middle, width, yerr=reach, color=colour, label=name, error_kw={"linewidth": 0.8}
            )
            insert.bar(where, [one["insert_us"] for _, one in found], width, color=colour)
            hits.bar(where, [one["answered"] for _, one in found], width, color=colour)
            hits.bar(
                where,
                [one["wrong"] for _, one in found],
                width,
                color="none",
                edgecolor="white",
                hatch="////",
            )
        for axes, title, label in (
            (lookup, "Lookup (figure 6, top)", "time [µs]"),
            (insert, "Insertion of a result", "time [µs]"),
            (hits, "Answered; hatched: wrong (figure 6, bottom)", "share of the lookups"),
        ):
            axes.set_xticks(range(len(sizes)), [f"K = {int(size):,}" for size in sizes])
            axes.set(title=title, ylabel=label)
        for axes in (lookup, insert):
            drawing.plain_logarithmic(axes.yaxis)
        drawing.caption(
            picture,
            "Generated flows, one thread; similarity: ε = 2, majority of 10 neighbours; "
            "gptcache: the nearest input answers, without a vote",
        )
        drawing.legend_below(picture, lookup)
        return picture


_EMPTY: Row = {
    "size": 0, "cache": "", "block": 0, "lookups": 0, "answered": 0, "wrong": 0, "lookup_us": 0.0,
    **{f"{count}_at_{epsilon:g}": 0 for epsilon in _SMALLER for count in ("answered", "wrong")},
    "build_ms": 0.0, "insert_us": 0.0, "note": "",
}  # fmt: skip
"""All columns with their empty values."""


def _popular(packets: NDArray[np.int16], size: int) -> NDArray[np.int64]:
    """Indices of the first occurrence of the most popular flows, at most ``size``."""
    asked = [*map(identity(), packets)]
    first = dict(zip(reversed(asked), reversed(range(len(asked))), strict=True))
    return np.array([first[key] for key, _ in Counter(asked).most_common(size)])


def _timed_us(operation: Callable[..., Any], *arguments: object) -> tuple[Any, float]:
    started_ns = time.perf_counter_ns()
    found = operation(*arguments)
    return found, (time.perf_counter_ns() - started_ns) / 1e3


def _measured(
    compared: Mapping[str, tuple[ComparedCache, float]], flows: NDArray[np.int16], truths: Sequence[int]
) -> dict[str, list[dict[str, float]]]:
    """Results of each cache in each block; the order of the caches rotates between blocks."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in compared}
    names = list(compared)
    inputs = flows / _LARGEST_PACKET
    for start in range(0, len(flows), _BLOCK):
        shift = start // _BLOCK % len(names)
        for name in names[shift:] + names[:shift]:
            cache, queries = compared[name][0], flows if name in (EXACT, OURS) else inputs
            block: Counter[str] = Counter()
            times = []
            for place in range(start, min(start + _BLOCK, len(flows))):
                answer, time_us = _timed_us(cache.lookup, queries[place])
                times.append(time_us)
                _count(block, "", answer, truths[place])
                if answer is None:
                    cache.learn(queries[place], truths[place])
                if name == PEER and cache.neighbours is not None:
                    neighbours = cache.neighbours(queries[place])
                    for epsilon in _SMALLER:
                        _count(block, f"_at_{epsilon:g}", vote(neighbours, epsilon), truths[place])
            found[name].append({**block, "lookups": len(times), "lookup_us": float(np.median(times))})
    return found


def _count(block: Counter[str], of: str, answer: int | None, truth: int) -> None:
    block[f"answered{of}"] += answer is not None
    block[f"wrong{of}"] += answer is not None and answer != truth


def _of_answers(one: Mapping[str, float]) -> float:
    """Share of wrong answers among a cache's answers."""
    return round(one["wrong"] / one["answered"], 4) if one["answered"] else 0.0


def _in_words(one: Mapping[str, float]) -> str:
    return f"answers {one['answered']:.3f} of the lookups, {one['wrong']:.4f} wrong"


def _ratios(caches: Mapping[str, Sequence[StoredRow]]) -> list[float]:
    """Lookup times of the BallTree over ours, block by block."""
    return [
        theirs / ours
        for theirs, ours in zip(
            values(caches[PEER], "lookup_us"), values(caches[OURS], "lookup_us"), strict=True
        )
    ]


def _summary(rows: Sequence[StoredRow]) -> dict[str, Any]:
    lookups = sum(values(rows, "lookups"))
    shares = ("answered", "wrong", *(one for one in _EMPTY if "_at_" in one and rows[0]["cache"] == PEER))
    return {
        "lookups": int(lookups),
        **{name: round(sum(values(rows, name)) / lookups, 4) for name in shares},
        "lookup_us": median_and_range(values(rows, "lookup_us")),
        "build_ms": round(float(rows[0]["build_ms"]), 1),
        "insert_us": round(float(rows[0]["insert_us"]), 2),
    }
