"""Figures 13, 14, 16, 17 of DeepCache: accuracy lost to reuse, and its trade-off with T and block.

Beyond the paper, the trade-off with expiry is measured, too.

Networks with labels, such as MuseumCNN, are trained, so their answers can be right or wrong. They are tested
on clips of tours. Accuracy is given for single frames, and for all frames of a visit to an exhibit by the
mean of their outputs, as in the paper. For all networks, the output is compared with that without a cache:
the deviation is the norm of the difference divided by the norm of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import mean
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import leaves, nested, values
from nearsight.experiments.studies.deepcache import networks
from nearsight.experiments.studies.deepcache.clips import TOURS, clip_of, names_of
from nearsight.experiments.studies.deepcache.ways import (
    BUDGETED,
    DEEPCACHE,
    DEEPMON,
    DEFAULT,
    EXACT,
    FIXED,
    OURS,
    OURS_LAST,
    PLAIN,
    Answer,
    Settings,
    bars,
    engines_of,
    seen,
)

_WAYS = (DEEPMON, DEEPCACHE, OURS_LAST, FIXED, EXACT, OURS, BUDGETED)
_SWEEPS: Mapping[str, tuple[Any, ...]] = {
    "threshold_db": (14.0, 17.0, 20.0, 23.0, 26.0, 30.0),
    "block_px": (4, 7, 10, 16, 28),
    "expiry": (2, 5, 10, 20, 40),
}
_SWEPT = (networks.TRAINED, "GoogLeNet", networks.SMALL)
_SWEPT_ON = (*TOURS, "standing")
_LABELS = {"threshold_db": "T [dB] (figure 16)", "block_px": "block [px] (figure 17)", "expiry": "N [frames]"}
_ACCURACIES = {"top1": "labelled", "top3": "labelled", "visit_top1": "visits", "visit_top3": "visits"}
"""By column: the column with the total of which it is a share."""
_LOST = {
    "top1": "top-1 lost, frames [points]",
    "top3": "top-3 lost, frames [points]",
    "visit_top1": "top-1 lost, visits [points]",
    "visit_top3": "top-3 lost, visits [points]",
}
"""Titles in the table, by column."""
_FRAMES, _SMOKE_FRAMES = (40, 600), (12, 40)
"""Number of frames of a clip, and of a tour."""
_TOP = {"top1": 1, "top3": 3}


class Figure(Experiment):
    """DeepCache's figures 13, 14, 16, 17: accuracy lost to reuse, deviation, T, block and expiry."""

    name: ClassVar[str] = "deepcache-accuracy"
    source: ClassVar[str] = "DeepCache, 7.3 and 7.5"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per network and clip; tours for networks that have labels."""
        wanted = (networks.TRAINED, *networks.PAPER, networks.TODAY)
        clips = names_of(options)[: 1 if options.smoke else None]
        return [
            {"network": network, "clip": clip}
            for network in networks.networks_of(options, wanted)
            for clip in (TOURS if networks.labels_of(network, options.data) else clips)
        ]

    def run(self, options: RunOptions, network: str, clip: str) -> Iterator[Row]:
        """One row per way and setting."""
        length = (_SMOKE_FRAMES if options.smoke else _FRAMES)[clip in TOURS]
        found = networks.network_of(network, options.data)
        with engines_of(found, networks.segments_in(options)) as engines:
            shown = clip_of(clip, options.data, options.seed, engines.size, length)
            expected, plain_ms = seen(engines.way(PLAIN), shown.frames)
            plain = _accuracy(expected, shown.labels, found.labels)
            for way, settings in _contenders(network, clip):
                answers, times_ms = seen(engines.way(way, settings), shown.frames)
                apart = np.array(
                    [_deviation(one, other) for one, other in zip(answers, expected, strict=True)]
                )
                yield {
                    **{"network": network, "clip": clip, "way": way, **settings._asdict()},
                    "frames": len(shown.frames),
                    **_accuracy(answers, shown.labels, found.labels),
                    **{f"plain_{column}": plain[column] for column in _ACCURACIES},
                    "deviation": round(float(apart[:, 0].mean()), 5),
                    "mse": round(float(np.median(apart[:, 1])), 7),
                    "frame_ms": round(float(times_ms.mean()), 4),
                    "plain_ms": round(float(plain_ms.mean()), 4),
                }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``ways``: by network, at the paper's settings; ``sweeps``: with fixed T, by setting and network."""
        usual = [row for row in rows if _settings(row) == DEFAULT]
        swept = [
            row
            for row in rows
            if row["way"] == FIXED and row["network"] in _SWEPT and row["clip"] in _SWEPT_ON
        ]
        return {
            "ways": nested(usual, ("network", "way"), _means),
            "sweeps": {name: nested(swept, ("network",), partial(_sweep, name)) for name in _SWEEPS},
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """At most one point of accuracy lost; the composite causes less deviation than the last frame."""
        ways = summary["ways"]
        found = list[Target]()
        for name, one in _trained(ways).items():
            found += [
                Target.at_least(
                    f"top-1 of {name} without a cache [%], at least 85", one[OURS]["plain_top1"], 85.0
                ),
                Target.at_most(
                    f"top-1 of {name} lost by ours, frames [points], at most 1", one[OURS]["top1_lost"], 1.0
                ),
                Target.at_most(
                    f"top-3 of {name} lost by ours, frames [points], at most 1", one[OURS]["top3_lost"], 1.0
                ),
            ]
        composite, last = (mean(one[way]["deviation"] for one in ways.values()) for way in (FIXED, OURS_LAST))
        text = "deviation with the composite relative to the last frame, mean of networks, at most 1"
        return (
            *found,
            Target.at_most(text, composite / last if last else 1.0, 1.0, f"{last:.3f} → {composite:.3f}", 3),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per network and way, then per setting."""
        for network, way, one in leaves(summary["ways"], 2):
            yield {"network": network, "way": way, **_formatted(one)}
        for setting, network, value, one in leaves(summary["sweeps"], 3):
            way = f"{FIXED}: {_LABELS[setting].partition(' (')[0]} = {value}"
            yield {"network": network, "way": way, **_formatted(one)}
        yield {
            "network": "paper",
            "way": "DeepCache",
            _LOST["visit_top1"]: "≤ 3 %",
            _LOST["visit_top3"]: "≤ 1.5 %",
            "median MSE": "0.00166 DET, 2.617 DRV (degrees)",
            "saved %": "18.2",
        }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw top-1 accuracy lost and deviation, by network and way, and sweeps of three settings."""
        ways, sweeps = results.metrics["ways"], results.metrics["sweeps"]
        picture = drawing.new_picture(12.0, 6.4)
        parts: Any = picture.subfigures(2, 1)
        top, below = parts[0], parts[1].subplots(1, 3)
        lost, apart = top.subplots(1, 2, width_ratios=[1, 2.2])
        if trained := _trained(ways):
            points = {
                name: {way: one["top1_lost"] for way, one in by_way.items()}
                for name, by_way in trained.items()
            }
            bars(lost, points, "%.2g" if len(trained) == 1 else "")
            lost.tick_params(axis="x", labelsize=8)
            low, high = lost.get_ylim()
            lost.set_ylim(min(low, -0.5), max(high, 0.5))  # at least half a point, in case nothing is lost
        else:
            lost.text(0.5, 0.5, "not measured: no network has labels", ha="center", color="#555555")
        lost.axhline(0, color="#555555", linewidth=0.8)
        lost.set(title="Top-1 accuracy lost (figure 13)", ylabel="points")
        bars(apart, {name: {way: one[way]["deviation"] for way in _WAYS} for name, one in ways.items()})
        apart.set(title="Deviation of the output (figure 14)", ylabel="share of the output's norm")
        drawing.legend_below(top, apart)
        capital = drawing.capital(FIXED)
        for axes, (setting, found) in zip(below, sweeps.items(), strict=True):
            right = axes.twinx()
            for side, column, colour in ((axes, "saved", "#24415c"), (right, "deviation", "#c2571a")):
                for (network, one), style in zip(found.items(), ("o-", "s--"), strict=False):
                    x, y = [float(value) for value in one], [numbers[column] for numbers in one.values()]
                    side.plot(x, y, style, color=colour, label=f"{network}: {column}", markersize=4)
            right.grid(visible=False)
            right.spines["right"].set_visible(True)
            axes.set(xlabel=_LABELS[setting], title=f"{capital}: {_LABELS[setting].partition(' ')[0]}")
            axes.set_ylabel("time saved [%]", color="#24415c")
            right.set_ylabel("deviation", color="#c2571a")
            if axes.get_subplotspec().is_first_col():
                lines = [*axes.get_lines(), *right.get_lines()]
                axes.legend(lines, [str(line.get_label()) for line in lines], fontsize=7)
        return picture


def _contenders(network: str, clip: str) -> list[tuple[str, Settings]]:
    """Every way with the paper's settings; ours with fixed T also with one setting changed."""
    found = [(way, DEFAULT) for way in _WAYS]
    if network in _SWEPT and clip in _SWEPT_ON:
        changed = [DEFAULT._replace(**{name: one}) for name, choices in _SWEEPS.items() for one in choices]
        found += [(FIXED, one) for one in changed if one != DEFAULT]
    return found


def _trained(ways: Mapping[str, Any]) -> dict[str, Any]:
    """Results of the networks with labels, by network and way."""
    return {name: by_way for name, by_way in ways.items() if "top1_lost" in by_way[OURS]}


def _accuracy(answers: Sequence[Answer], shown: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Count labelled frames and visits, and compute the share of right labels; empty without any."""
    frames = [(answer, label) for answer, label in zip(answers, shown, strict=True) if label in labels]
    visits = [
        (np.mean([answer for answer, _ in visit], axis=0), label)
        for label, visit in groupby(frames, key=lambda one: one[1])
    ]
    found: dict[str, Any] = {"labelled": len(frames), "visits": len(visits)}
    for column, counted in _ACCURACIES.items():
        pairs, most = (visits if counted == "visits" else frames), _TOP[column.removeprefix("visit_")]
        named = [labels.index(label) in np.argsort(-answer.ravel())[:most] for answer, label in pairs]
        found[column] = round(mean(map(float, named)), 5) if named else ""
    return found


def _deviation(answer: Answer, expected: Answer) -> tuple[float, float]:
    """Deviation and mean squared error."""
    error = np.asarray(answer, np.float64) - expected
    return float(np.linalg.norm(error) / max(float(np.linalg.norm(expected)), 1e-9)), float(np.mean(error**2))


def _sweep(setting: str, rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Results by value of one setting; the others have the paper's values."""
    wanted = {f"{value:g}": DEFAULT._replace(**{setting: value}) for value in _SWEEPS[setting]}
    found = {value: [row for row in rows if _settings(row) == one] for value, one in wanted.items()}
    return {value: _means(mine) for value, mine in found.items() if mine}


def _settings(row: StoredRow) -> Settings:
    return Settings(float(row["threshold_db"]), int(row["block_px"]), int(row["expiry"]))


def _means(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Means over clips; accuracy in points, weighted by the number of labelled frames or of visits."""
    found = {
        "deviation": round(mean(float(row["deviation"]) for row in rows), 4),
        "mse": float(f"{mean(float(row['mse']) for row in rows):.3g}"),
        "saved": round(100 * mean(1 - float(row["frame_ms"]) / float(row["plain_ms"]) for row in rows), 2),
    }
    if labelled := [row for row in rows if row["top1"]]:
        for column, counted in _ACCURACIES.items():
            plain, now = (
                100 * np.average(values(labelled, name), weights=values(labelled, counted))
                for name in (f"plain_{column}", column)
            )
            found[f"plain_{column}"] = round(float(plain), 2)
            found[f"{column}_lost"] = round(float(plain - now), 3)
    return found


def _formatted(one: Mapping[str, float]) -> dict[str, object]:
    lost: dict[str, object] = {}
    for column, title in _LOST.items():
        value = one.get(f"{column}_lost")
        lost[title] = "" if value is None else f"{value:.2f}"
    return {
        **lost,
        "deviation": f"{one['deviation']:.3f}",
        "median MSE": f"{one['mse']:.3g}",
        "saved %": f"{one['saved']:.0f}",
    }
