"""Figures 13, 14, 16 and 17 of DeepCache: what reuse costs in accuracy, and how T, block and expiry trade it.

MuseumCNN is trained, so that its labels are right or wrong: on clips of tours that it was not trained on. Of
networks with random weights the output is compared with that without a cache: the deviation is the length of
the difference over the length of the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Table,
    Target,
)
from nearsight.experiments.framework.numbers import grouped
from nearsight.experiments.studies.deepcache.clips import TOURS, Clip, clip_of, names_of
from nearsight.experiments.studies.deepcache.networks import (
    PAPER,
    SMALL,
    TODAY,
    TRAINED,
    network_of,
    networks_of,
    segments_in,
)
from nearsight.experiments.studies.deepcache.ways import (
    COLOURS,
    DEEPCACHE,
    DEEPMON,
    DEFAULT,
    GUARDED,
    OURS,
    OURS_LAST,
    PLAIN,
    Settings,
    engines_of,
    seen,
)

_WAYS = (DEEPMON, DEEPCACHE, OURS_LAST, OURS, GUARDED)
_SWEEPS: Mapping[str, tuple[Any, ...]] = {
    "threshold_db": (14.0, 17.0, 20.0, 23.0, 26.0, 30.0),
    "block_px": (4, 7, 10, 16, 28),
    "expiry": (2, 5, 10, 20, 40),
}
_SWEPT = (TRAINED, "GoogLeNet", SMALL)
_SWEPT_ON = (*TOURS, "standing")
_SAID = {"threshold_db": "T [dB] (figure 16)", "block_px": "block [px] (figure 17)", "expiry": "N [frames]"}
_TOUR_FRAMES, _CLIP_FRAMES = 600, 40
_TOP = 3


class Figure(Experiment):
    """DeepCache's figures 13, 14, 16, 17: accuracy lost to reuse, deviation, T, block and expiry."""

    name: ClassVar[str] = "deepcache-accuracy"
    source: ClassVar[str] = "DeepCache, 7.3 and 7.5"
    takes_data: ClassVar[bool] = True

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """One per network and clip; tours for the network that knows the exhibits."""
        return tuple(
            Cell(f"{network}-{clip.replace(' ', '-')}", {"network": network, "clip": clip})
            for network in networks_of(options, (TRAINED, *PAPER, TODAY))
            for clip in (TOURS if network == TRAINED else names_of(options)[: 1 if options.smoke else None])
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:
        """A row per way and setting."""
        name, shown = cell.parameters["network"], cell.parameters["clip"]
        most = 12 if options.smoke else _TOUR_FRAMES if shown in TOURS else _CLIP_FRAMES
        network = network_of(name, options.data)
        rows: list[Row] = []
        with engines_of(network, segments_in(options)) as engines:
            clip = clip_of(shown, options.data, options.seed, engines.size, most)
            expected, plain_ms = seen(engines.way(PLAIN), clip.frames)
            plain = _right(expected, clip, network.labels)
            for way, settings in _contenders(name, shown):
                answers, times_ms = seen(engines.way(way, settings), clip.frames)
                right = _right(answers, clip, network.labels)
                apart = [_apart(one, other) for one, other in zip(answers, expected, strict=True)]
                rows.append(
                    {
                        "network": name,
                        "clip": shown,
                        "way": way,
                        **settings._asdict(),
                        "frames": len(clip.frames),
                        "labelled": right.size // 2,
                        "top1": round(float(right[0].mean()), 5) if right.size else "",
                        "top3": round(float(right[1].mean()), 5) if right.size else "",
                        "plain_top1": round(float(plain[0].mean()), 5) if right.size else "",
                        "plain_top3": round(float(plain[1].mean()), 5) if right.size else "",
                        "deviation": round(mean(one[0] for one in apart), 5),
                        "mse": round(float(np.median([one[1] for one in apart])), 7),
                        "frame_ms": round(float(times_ms.mean()), 4),
                        "plain_ms": round(float(plain_ms.mean()), 4),
                    }
                )
        return rows

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``ways``: by network, at the paper's settings; ``sweeps``: ours, by setting and network."""
        usual = [row for row in rows if _settings(row) == DEFAULT]
        swept = [
            row
            for row in rows
            if row["way"] == OURS and row["network"] in _SWEPT and row["clip"] in _SWEPT_ON
        ]
        return {
            "ways": {
                network: {way: _of(lines) for way, lines in grouped(mine, "way").items()}
                for network, mine in grouped(usual, "network").items()
            },
            "sweeps": {
                name: {
                    network: {
                        f"{value:g}": _of(found) for value in choices if (found := _where(mine, name, value))
                    }
                    for network, mine in grouped(swept, "network").items()
                }
                for name, choices in _SWEEPS.items()
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """At most a point of accuracy; the composite keeps the output nearer than the last frame."""
        ways = summary["ways"]
        found = []
        if trained := ways.get(TRAINED):
            found = [
                Target.at_least("top-1 of MuseumCNN without a cache [%]", trained[OURS]["plain_top1"], 85.0),
                Target.at_most("top-1 lost by ours [points]", trained[OURS]["top1_lost"], 1.0),
                Target.at_most("top-3 lost by ours [points]", trained[OURS]["top3_lost"], 1.0),
            ]
        composite, last = (mean(one[way]["deviation"] for one in ways.values()) for way in (OURS, OURS_LAST))
        text = "deviation against the composite over that against the last frame, mean of networks"
        return (
            *found,
            Target.at_most(text, composite / last if last else 1.0, 1.0, f"{last:.3f} → {composite:.3f}", 3),
        )

    def table(self, summary: Mapping[str, Any]) -> Table:
        """A line per network and way, then per setting."""
        columns = (
            "network",
            "way",
            "top-1 lost",
            "top-3 lost [points]",
            "deviation",
            "median MSE",
            "saved %",
        )
        lines = [
            (network, way, *_in_words(one))
            for network, found in summary["ways"].items()
            for way, one in found.items()
        ]
        for setting, networks in summary["sweeps"].items():
            for network, found in networks.items():
                lines += [
                    (network, f"{_SAID[setting].partition(' (')[0]} = {value}", *_in_words(one))
                    for value, one in found.items()
                ]
        lines.append(
            ("paper", "DeepCache", "≤ 3 % (relative)", "≤ 1.5 %", "", "0.00166 DET, 2.617 DRV", "18.2")
        )
        return columns, lines

    def draw(self, results: Results) -> drawing.Picture:
        """Accuracy lost by way; deviation by network and way; time saved and deviation by three settings."""
        ways, sweeps = results.metrics["ways"], results.metrics["sweeps"]
        picture = drawing.new_picture(12.0, 6.4)
        parts: Any = picture.subfigures(2, 1)
        top, below = parts[0], parts[1].subplots(1, 3)
        lost, apart = top.subplots(1, 2, width_ratios=[1, 2.2])
        trained = ways.get(TRAINED, {})
        for place, column in enumerate(("top1_lost", "top3_lost")):
            for number, way in enumerate(trained):
                value = trained[way][column]
                bar = lost.bar(place + 0.16 * (number - 2), value, 0.15, color=COLOURS[way])
                lost.bar_label(bar, [f"{value:.2f}"], fontsize=7)
        if not trained:
            lost.text(0.5, 0.5, f"not measured: no {TRAINED}", ha="center", color="#555555")
        lost.set_xticks((0, 1), ("top 1", "top 3"))
        lost.axhline(0, color="#555555", linewidth=0.8)
        lost.set(title=f"Accuracy lost, {TRAINED} (figure 13)", ylabel="points")
        places = np.arange(len(ways))
        for number, way in enumerate(_WAYS):
            values = [one[way]["deviation"] for one in ways.values()]
            apart.bar(places + 0.16 * (number - 2), values, 0.15, color=COLOURS[way], label=way)
        apart.set_xticks(places, [*ways])
        apart.set(title="Deviation of the output (figure 14)", ylabel="share of its length")
        drawing.legend_below(top, apart)
        for axes, (setting, networks) in zip(below, sweeps.items(), strict=True):
            right = axes.twinx()
            right.grid(visible=False)
            for (network, found), style in zip(networks.items(), ("o-", "s--"), strict=False):
                x = [float(value) for value in found]
                axes.plot(
                    x,
                    [one["saved"] for one in found.values()],
                    style,
                    color="#24415c",
                    label=f"{network}: saved",
                    markersize=4,
                )
                right.plot(
                    x,
                    [one["deviation"] for one in found.values()],
                    style,
                    color="#c2571a",
                    label=f"{network}: deviation",
                    markersize=4,
                )
            axes.set(xlabel=_SAID[setting], title=f"Ours: {_SAID[setting].partition(' ')[0]}")
            axes.set_ylabel("time saved [%]", color="#24415c")
            right.set_ylabel("deviation", color="#c2571a")
            right.spines["right"].set_visible(True)
            if axes.get_subplotspec().is_first_col():
                lines = [*axes.get_lines(), *right.get_lines()]
                axes.legend(lines, [str(line.get_label()) for line in lines], fontsize=7)
        return picture


def _contenders(network: str, clip: str) -> list[tuple[str, Settings]]:
    """Every way as in the paper; ours with one setting changed."""
    found = [(way, DEFAULT) for way in _WAYS]
    if network in _SWEPT and clip in _SWEPT_ON:
        changed = [
            Settings(**{**DEFAULT._asdict(), name: value})
            for name, choices in _SWEEPS.items()
            for value in choices
        ]
        found += [(OURS, one) for one in changed if one != DEFAULT]
    return found


def _right(answers: Sequence[NDArray[np.float32]], clip: Clip, labels: Sequence[str]) -> NDArray[np.bool_]:
    """(2, frames with a label): whether it is the first, and among the first three; empty without labels."""
    pairs = [
        (answer.ravel(), label) for answer, label in zip(answers, clip.labels, strict=True) if label in labels
    ]
    best = [[labels[one] for one in np.argsort(-answer)[:_TOP]] for answer, _ in pairs]
    return np.array(
        [
            [label == names[0] for (_, label), names in zip(pairs, best, strict=True)],
            [label in names for (_, label), names in zip(pairs, best, strict=True)],
        ],
        bool,
    )


def _apart(answer: NDArray[np.float32], expected: NDArray[np.float32]) -> tuple[float, float]:
    """Deviation and mean squared error."""
    error = np.asarray(answer, np.float64) - expected
    return float(np.linalg.norm(error) / max(float(np.linalg.norm(expected)), 1e-9)), float(np.mean(error**2))


def _where(rows: Sequence[StoredRow], setting: str, value: Any) -> list[StoredRow]:
    wanted = Settings(**{**DEFAULT._asdict(), setting: value})
    return [row for row in rows if _settings(row) == wanted]


def _settings(row: StoredRow) -> Settings:
    return Settings(float(row["threshold_db"]), int(row["block_px"]), int(row["expiry"]))


def _of(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Means over clips; of accuracy in points, weighted by the frames with a label."""
    found = {
        "deviation": round(mean(float(row["deviation"]) for row in rows), 4),
        "mse": float(f"{mean(float(row['mse']) for row in rows):.3g}"),
        "saved": round(100 * mean(1 - float(row["frame_ms"]) / float(row["plain_ms"]) for row in rows), 2),
    }
    if all(row["top1"] for row in rows):
        weights = [int(row["labelled"]) for row in rows]
        for column in ("top1", "top3"):
            plain, now = (
                np.average([100 * float(row[name]) for row in rows], weights=weights)
                for name in (f"plain_{column}", column)
            )
            found |= {
                f"plain_{column}": round(float(plain), 2),
                f"{column}_lost": round(float(plain - now), 3),
            }
    return found


def _in_words(one: Mapping[str, float]) -> tuple[str, ...]:
    lost = [f"{one[name]:.2f}" if name in one else "" for name in ("top1_lost", "top3_lost")]
    return (*lost, f"{one['deviation']:.3f}", f"{one['mse']:.3g}", f"{one['saved']:.0f}")
