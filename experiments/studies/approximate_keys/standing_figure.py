"""Photos of standing visitors, recognised with a result cache in front of the recogniser.

Visitors stand before exhibits of a generated museum with handheld phones, and take five photos per second.
The classifier is the catalogue's recognition. An answer of the cache is wrong if the photo does not show that
exhibit. If the recogniser would not have recognised the photo, the answer counts as a disagreement, but is
right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from random import Random
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, share, values
from nearsight.experiments.museum.camera.handheld import Filming
from nearsight.experiments.studies.approximate_keys.standing import (
    COLOUR,
    FEATURES,
    KINDS,
    LAYOUT,
    Stream,
    clips_in,
    exhibits,
    filmed,
    lookups,
    models_of_clips,
    photo_rows,
    play,
    real,
    similarity,
    streams,
)

BETA = 1.5
PHOTOS_PER_S = 5.0
STANDING = 0.5
"""Liveliness of the visitors in the targets; their shake is that of real clips."""
_VISITORS = {STANDING: 10, 0.25: 3, 1.0: 3}
"""Number of visitors by liveliness."""
_RATES = {1: PHOTOS_PER_S, 2: 2.5, 5: 1.0}
"""Photos per second if only every n-th photo is taken, by n."""
_STAYS, _CATALOGUE = 5, 400
_REAL, _CLIP = "real clips", "clip"
SHARED, SIMILARITY, SEQUENTIAL = "layout, shared", "similarity", "layout, sequential test"
_BUDGET = 0.01
_PLAYS = 5
"""Number of plays of a sequential test, whose verifications are random."""
_TITLES = {
    "hash": "perceptual hash",
    "one grid": "layout, one grid",
    LAYOUT: "layout (default)",
    COLOUR: "colour layout",
    SEQUENTIAL: "layout, sequential test",
    SHARED: "layout, visitors share keys",
    "min-hash": "min-hash of descriptors",
    FEATURES: "features (default)",
    SIMILARITY: "similarity caching",
}


class Figure(Experiment):
    """Standing visitors: photos served without inference, wrong answers and CPU time, by kind of keys."""

    name: ClassVar[str] = "approximate-standing"
    source: ClassVar[str] = "beyond approximate-key caching, 5"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Report that real clips are left out if no folder was given."""
        if options.data is None:
            say("real clips are left out: give a folder of videos with --data")
        return options

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per liveliness and visitor, and one per real clip, with its number."""
        visitors = {STANDING: 2} if options.smoke else _VISITORS
        clips = () if options.data is None else clips_in(options.data)
        return [
            *(
                {"liveliness": liveliness, "visitor": visitor}
                for liveliness, count in visitors.items()
                for visitor in range(count)
            ),
            *({"liveliness": _CLIP, "visitor": number} for number in range(len(clips))),
        ]

    def run(self, options: RunOptions, liveliness: float | str, visitor: int) -> list[Row]:
        """Film, recognise, and compute the keys; one row per photo."""
        cell = f"{liveliness}-{visitor}"
        models = exhibits(options.seed, 4 if options.smoke else _CATALOGUE)
        if liveliness == _CLIP and options.data is not None:
            frames = real(clips_in(options.data)[visitor])
            models = (*models, *models_of_clips(options.data))
            liveliness = _REAL
        else:
            how = Filming(float(liveliness), PHOTOS_PER_S)
            frames = filmed(options, _VISITORS[STANDING], visitor, _STAYS, how)
        return [{"cell": cell, "liveliness": liveliness, **row} for row in photo_rows(frames, models)]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``visitors.<liveliness>``: photos, rates, kinds of keys; and the CPU time of a request."""
        return {
            "visitors": {name: _of_visitors(group) for name, group in grouped(rows, "liveliness").items()}
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Served share, wrong share and CPU time for standing visitors."""
        found = summary["visitors"][str(STANDING)]
        layout, other, sequential = (found["kinds"][kind] for kind in (LAYOUT, SIMILARITY, SEQUENTIAL))
        who = f"standing visitors, {PHOTOS_PER_S:g} photos a second, back-off {BETA:g}"
        yield Target.at_least(f"{who}: served without inference, at least 70 %", layout["served"], 0.7)
        text = f"back-off {BETA:g}: wrong share of the served answers, at most 1 %"
        note = (
            f"the recogniser differs, mostly with unknown: {percent(layout['disagreed'], 2)}; "
            f"similarity caching at the same share: {percent(other['wrong'], 2)} wrong"
        )
        yield Target.at_most(text, layout["wrong"], 0.01, note)
        text = f"sequential test, budget {percent(_BUDGET)}: served without inference, at least 80 %"
        note = f"{percent(sequential['wrong'], 2)} of these wrong"
        yield Target.at_least(text, sequential["served"], 0.8, note)
        text = "sequential test: wrong share of the served answers, at most 1 %"
        yield Target.at_most(text, sequential["wrong"], 0.01)
        photo, features = (found["cpu"][kind]["ratio"] for kind in ("photo", "features"))
        text = "CPU time of the edge per photo without network, relative to no cache, at most a third"
        yield Target.at_most(text, photo, 1 / 3, digits=3)
        yield Target.at_most("the same where devices send features", features, 1 / 3, digits=3)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per liveliness and kind of keys."""
        for name, found in summary["visitors"].items():
            for kind, one in found["kinds"].items():
                yield {
                    "visitors": name,
                    "keys": _TITLES[kind],
                    "served": f"{one['served']:.3f}",
                    "wrong of these": f"{one['wrong']:.4f}",
                    "differs from the recogniser": f"{one['disagreed']:.4f}",
                }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw served and wrong shares by kind of keys, served share over the photo rate, and CPU time."""
        found = results.metrics["visitors"]
        picture = drawing.new_picture(12.6, 4.2)
        kinds, rates, cpu = picture.subplots(1, 3, width_ratios=[1.5, 1.0, 1.0])
        _draw_kinds(kinds, found[str(STANDING)]["kinds"])
        _draw_rates(rates, found)
        _draw_cpu(cpu, found[str(STANDING)]["cpu"])
        standing = found[str(STANDING)]
        drawing.caption(
            picture,
            f"{standing['visitors']} visitors, {standing['photos']} photos, {PHOTOS_PER_S:g} a second, "
            f"median stay {standing['median_stay_s']:.0f} s, shake as in real clips; back-off {BETA:g}; "
            f"{percent(standing['unknown'], 1)} of the photos of exhibits are unknown to the recogniser",
        )
        return picture


def _of_visitors(rows: Sequence[StoredRow]) -> dict[str, Any]:
    refresh = AutoRefresh(BETA)
    kinds = {kind: play(streams(rows, kind), refresh).shares() for kind in KINDS}
    kinds[SEQUENTIAL] = _sequential(streams(rows, LAYOUT))
    kinds[SHARED] = play(streams(rows, LAYOUT, shared=True), refresh).shares()
    similar, reach = similarity(rows, kinds[LAYOUT]["served"])
    kinds[SIMILARITY] = {**similar.shares(), "distance": round(reach, 3)}
    rates = {} if rows[0]["liveliness"] == _REAL else _RATES
    shown = [row for row in rows if row["shown"]]
    return {
        "visitors": len({row["cell"] for row in rows}),
        "photos": len(rows),
        "unknown": share(not row["answered"] for row in shown),
        "misrecognised": sum(row["answered"] not in {"", row["shown"]} for row in rows),
        "median_stay_s": float(np.median(_stays_s(rows))),
        "kinds": kinds,
        "rates": {
            f"{rate:g}": play(streams(rows, LAYOUT, every), refresh).shares() for every, rate in rates.items()
        },
        "cpu": {
            "photo": _cpu(
                rows,
                ("decode_ms", "extract_ms", "recognize_ms"),
                ("small_ms", "layout_ms", "cache_ms"),
                LAYOUT,
            ),
            "features": _cpu(rows, ("recognize_ms",), ("features_ms", "cache_ms"), FEATURES),
        },
    }


def _sequential(photos: Sequence[Stream]) -> dict[str, float]:
    """Mean over plays with different random verifications."""
    played = [
        play(photos, SequentialTest(Budget(error=_BUDGET), Random(seed))).shares() for seed in range(_PLAYS)
    ]
    return {name: round(float(np.mean([one[name] for one in played])), 4) for name in played[0]}


def _cpu(
    rows: Sequence[StoredRow], without: Sequence[str], looking: Sequence[str], kind: str
) -> dict[str, float]:
    """Means per request [ms]: recognition, lookup, and lookup with recognition of misses."""
    full, look = (np.sum([values(rows, name) for name in names], axis=0) for names in (without, looking))
    recognised = [value is None for _, value in lookups(streams(rows, kind), AutoRefresh(BETA))]
    with_cache = look + np.where(recognised, full, 0.0)
    return {
        "without_ms": round(float(full.mean()), 3),
        "look_ms": round(float(look.mean()), 3),
        "with_ms": round(float(with_cache.mean()), 3),
        "ratio": round(float(with_cache.mean() / full.mean()), 4),
    }


def _stays_s(rows: Sequence[StoredRow]) -> list[float]:
    """Durations for which exhibits were shown without interruption [s]."""
    runs = groupby(rows, key=lambda row: (row["cell"], row["shown"]))
    spans = [[float(row["at_s"]) for row in run] for (_, shown), run in runs if shown]
    return [span[-1] - span[0] for span in spans]


def _draw_kinds(axes: Axes, kinds: Mapping[str, Mapping[str, float]]) -> None:
    names = [name for name in _TITLES if name in kinds]
    places = np.arange(len(names))
    axes.barh(places, [kinds[name]["served"] for name in names], color="#1f6f8b")
    for place, name in zip(places, names, strict=True):
        one = kinds[name]
        axes.annotate(
            f"{100 * one['wrong']:.2f} % wrong",
            (one["served"], place),
            xytext=(3, -3),
            textcoords="offset points",
        )
    axes.axvline(0.7, color="#8a8a8a", linewidth=0.8, linestyle="--")
    axes.set_yticks(places, [_TITLES[name] for name in names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(title="Served without inference", xlabel="share of the photos", xlim=(0, 1.12))


def _draw_rates(axes: Axes, found: Mapping[str, Any]) -> None:
    groups = [name for name in found if name != _REAL]
    for name, colour in zip(groups, drawing.SEQUENCE, strict=False):
        rates = found[name]["rates"]
        axes.plot(
            [float(rate) for rate in rates],
            [one["served"] for one in rates.values()],
            "o-",
            color=colour,
            markersize=4,
            label=f"liveliness {name}",
        )
    axes.axhline(0.7, color="#8a8a8a", linewidth=0.8, linestyle="--")
    axes.set(title="Effect of the photo rate", xlabel="photos a second", ylabel="share served", ylim=(0, 1))
    axes.legend(loc="lower right")


def _draw_cpu(axes: Axes, cpu: Mapping[str, Mapping[str, float]]) -> None:
    sent = {"devices send a photo": cpu["photo"], "features": cpu["features"]}
    places = np.arange(len(sent))
    for shift, colour, label, quantity in (
        (-0.2, "#8a8a8a", "without the cache", "without_ms"),
        (0.2, "#1f6f8b", "with it", "with_ms"),
    ):
        found = [one[quantity] for one in sent.values()]
        bars = axes.bar(places + shift, found, 0.38, color=colour, label=label)
        axes.bar_label(bars, [f"{one:.2f}" for one in found], fontsize=8)
    axes.set_xticks(places, list(sent))
    axes.set(title="CPU time of the edge per request", ylabel="mean [ms]")
    axes.legend(loc="upper right")
