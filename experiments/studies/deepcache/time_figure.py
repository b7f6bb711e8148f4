"""Figures 10, 11 and 15 of DeepCache: the time of every network on every clip, without and with caches.

CPU time with one thread; it also represents the paper's energy. The ways take turns after a few frames, in an
order that rotates, and the whole measurement is repeated. The time saved is given in three columns: over all
frames; over the frames that differ from the previous one, because any gate can answer the others; and
relative to a gate that repeats the last answer for frames in which all blocks match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import mean, median
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.video.matching import Frame
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import leaves, nested, values
from nearsight.experiments.studies.deepcache import networks
from nearsight.experiments.studies.deepcache.clips import clip_of, names_of
from nearsight.experiments.studies.deepcache.ways import (
    BUDGETED,
    DEEPCACHE,
    DEEPMON,
    EXACT,
    FIXED,
    GATE,
    OURS,
    PLAIN,
    WINDOW,
    Process,
    bars,
    changes,
    engines_of,
    seen,
)

_WAYS = (PLAIN, GATE, DEEPMON, DEEPCACHE, FIXED, EXACT, OURS, BUDGETED, WINDOW)
_OTHERS = (GATE, DEEPMON, DEEPCACHE, FIXED, EXACT, BUDGETED, WINDOW)
_BOTH = "{}: all, changed"
"""Title of a column: a way, and the time that it saves on all and on changed frames [%]."""
_FRAMES, _REPEATS = 60, 3
_TURN_FRAMES = 15
"""Short turns, because the speed of a machine changes by several per cent within a minute."""
_TIMES = ("frame_ms", "changed_ms", "p95_ms")
_LEAST_CHANGED = 5
"""Smallest number of changed frames for which a clip counts in their column."""
_SAVED: Mapping[str, tuple[float, float | None]] = {
    "AlexNet": (28.1, 13.1),
    "GoogLeNet": (19.7, 10.2),
    "YOLO": (14.2, None),
    "mean": (18.2, 8.9),
    "mean, energy": (19.7, 8.0),
}
"""Time saved by DeepCache and by DeepMon [%], from the paper's text."""


class Figure(Experiment):
    """DeepCache's figures 10, 11, 15: time per frame of networks on clips, plain and with eight caches."""

    name: ClassVar[str] = "deepcache-time"
    source: ClassVar[str] = "DeepCache, 7.2 and 7.4"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per network and clip."""
        clips = names_of(options)[: 1 if options.smoke else None]
        wanted = (*networks.PAPER, networks.TODAY, networks.TRAINED)
        return [
            {"network": network, "clip": clip}
            for network in networks.networks_of(options, wanted)
            for clip in clips
        ]

    def run(self, options: RunOptions, network: str, clip: str) -> Iterator[Row]:
        """One row per way and repetition: mean times per frame."""
        frames, repeats = (12, 1) if options.smoke else (_FRAMES, _REPEATS)
        found, kept = networks.network_of(network, options.data), networks.segments_in(options)
        with ExitStack() as stack:
            engines = {way: stack.enter_context(engines_of(found, kept)) for way in _WAYS}
            shown = clip_of(clip, options.data, options.seed, engines[PLAIN].size, frames)
            larger = clip_of(clip, options.data, options.seed, engines[WINDOW].frame_size(WINDOW), frames)
            given = {way: (larger if way == WINDOW else shown).frames for way in _WAYS}
            changed = changes(shown.frames)
            for repeat in range(repeats):
                processes = {way: engines[way].way(way) for way in _WAYS}
                for way, times_ms in _in_turns(processes, given, repeat).items():
                    of_pair: Row = {"network": network, "clip": clip, "way": way, "repeat": repeat}
                    counts = {"frames": len(shown.frames), "changed": int(changed.sum())}
                    spent = times_ms.mean(), times_ms[changed].mean(), np.percentile(times_ms, 95)
                    times = {column: round(float(ms), 4) for column, ms in zip(_TIMES, spent, strict=True)}
                    yield {**of_pair, **counts, **times}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """For each network and clip: medians by way, and the time that each way saves [%]."""
        pairs = nested(rows, ("network", "clip"), _of_pair)
        lines = [one for *_, one in leaves(pairs, 2)]
        means = {
            way: {
                column: round(mean(one[way][column] for one in lines if one["changed"] >= least), 2)
                for column, least in (("all", 0), ("changed", _LEAST_CHANGED), ("gate", 0), ("p95", 0))
                if any(one["changed"] >= least for one in lines)
            }
            for way in _WAYS
        }
        return {"pairs": pairs, "means": means}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Targets for our savings, and the paper's conclusions."""
        pairs = {f"{network} on {clip}": one for network, clip, one in leaves(summary["pairs"], 2)}
        moving = {name: one for name, one in pairs.items() if one["changed"] >= _LEAST_CHANGED}
        means = summary["means"]
        found = [_best("time saved over all frames, best pair", pairs, "all", 60.0)]
        if moving:
            found.append(_best("time saved on changed frames, best pair", moving, "changed", 40.0))
        for way, added in ((OURS, ""), (WINDOW, ", with the window")):
            which = f"mean of pairs{added}"
            found.append(_saves(f"time saved over all frames, {which}", means[way]["all"], 35.0))
            if moving:
                text = f"time saved on changed frames, {which}"
                found.append(_saves(text, means[way]["changed"], 15.0, "goal: 22"))
        slower = [name for name, one in pairs.items() if one[OURS]["all"] < one[DEEPMON]["all"] - 1.0]
        text = "pairs for which DeepMon saves over one point more; none in the paper"
        return (
            *found,
            _saves("time saved against the gate, mean of pairs", means[OURS]["gate"], 0.0),
            Target.at_most(text, len(slower), 0, ", ".join(slower[:4])),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per network and clip, then the means, and the paper's values."""
        for network, clip, one in leaves(summary["pairs"], 2):
            changed, plain_ms = f"{one['changed']} of {one['frames']}", f"{one[PLAIN]['frame_ms']:.1f}"
            named = {"network": network, "clip": clip, "changed": changed, "plain ms": plain_ms}
            yield {**named, **_formatted(one)}
        yield {"network": "mean of pairs", **_formatted(summary["means"])}
        for name, (theirs, deepmon) in _SAVED.items():
            others = {_BOTH.format(DEEPCACHE): theirs, _BOTH.format(DEEPMON): deepmon or ""}
            clip = "UCF101 and driving" if name.startswith("mean") else "10 of UCF101"
            yield {"network": f"paper: {name}", "clip": clip, **others}

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the time per frame of each network, and our savings per clip over all and changed frames."""
        pairs = results.metrics["pairs"]
        clips = list(dict.fromkeys(clip for found in pairs.values() for clip in found))
        picture = drawing.new_picture(12.0, 4.4)
        average, every, moving = picture.subplots(1, 3, width_ratios=[1.3, 1, 1])
        spent = {
            name: {way: mean(100 - one[way]["all"] for one in found.values()) for way in _WAYS}
            for name, found in pairs.items()
        }
        bars(average, spent)
        average.tick_params("x", labelrotation=30)
        average.set(title="Time per frame, mean of clips (figures 10, 15)", ylabel="% of plain onnxruntime")
        for axes, column, title in ((every, "all", "all frames"), (moving, "changed", "changed frames")):
            found = [[_number(pairs[name].get(clip), column) for clip in clips] for name in pairs]
            shades = axes.imshow(found, vmin=-60, vmax=80, cmap="PuOr", aspect="auto")
            shades.set_clip_on(True)
            for row, line in enumerate(found):
                for place, value in enumerate(line):
                    text, colour = "" if np.isnan(value) else f"{value:.0f}", "w" if value > 50 else "k"
                    axes.text(place, row, text, ha="center", va="center", color=colour)
            axes.set_xticks(range(len(clips)), [_title(clip) for clip in clips], rotation=40, ha="right")
            axes.set_yticks(range(len(pairs)), [*pairs] if axes is every else [])
            axes.set(title=f"Saved by ours, {title} [%]")
            axes.grid(visible=False)
        drawing.legend_below(picture, average)
        drawing.caption(
            picture, "CPU time, one thread, matching included; medians of repetitions (figure 11)"
        )
        return picture


def _in_turns(
    processes: Mapping[str, Process], given: Mapping[str, Sequence[Frame]], repeat: int
) -> dict[str, NDArray[np.float64]]:
    """CPU time of each frame by way [ms]. Each way has its own network, and continues where it stopped."""
    times_ms: dict[str, list[float]] = {way: [] for way in processes}
    turns = range(0, len(given[PLAIN]), _TURN_FRAMES)
    for number, start in enumerate(turns, start=repeat * len(turns)):
        for way in np.roll([*processes], number):
            times_ms[way].extend(seen(processes[way], given[way][start : start + _TURN_FRAMES])[1])
    return {way: np.array(found) for way, found in times_ms.items()}


def _title(clip: str) -> str:
    """Shorten a name for an axis, such as that of a clip of UCF101: v_Action_g01_c01."""
    return clip.partition(".")[0].removeprefix("ucf101_v_").partition("_g")[0][:15]


def _number(pair: Mapping[str, Any] | None, column: str) -> float:
    if pair is None or (column == "changed" and pair["changed"] < _LEAST_CHANGED):
        return float("nan")
    return float(pair[OURS][column])


def _formatted(by_way: Mapping[str, Mapping[str, float]]) -> dict[str, object]:
    def saved(way: str, column: str) -> str:
        return f"{by_way[way][column]:.1f}" if column in by_way[way] else ""

    p95 = ", ".join(f"{by_way[way]['p95']:.0f}" for way in (OURS, BUDGETED))
    found: dict[str, object] = {
        "saved by ours: all [%]": saved(OURS, "all"),
        "on changed": saved(OURS, "changed"),
        "against gate": saved(OURS, "gate"),
        "p95: ours, budget [% of the mean of plain]": p95,
    }
    for way in _OTHERS:
        found[_BOTH.format(way)] = f"{saved(way, 'all')}, {saved(way, 'changed')}"
    return found


def _best(text: str, pairs: Mapping[str, Any], column: str, least: float) -> Target:
    name = max(pairs, key=lambda one: pairs[one][OURS][column])
    return _saves(text, pairs[name][OURS][column], least, name)


def _saves(text: str, saved: float, least: float, note: str = "") -> Target:
    return Target.at_least(f"{text} [%], at least {least:g}", saved, least, note)


def _of_pair(rows: list[StoredRow]) -> dict[str, Any]:
    by_way = nested(
        rows,
        ("way",),
        lambda mine: {column: round(median(values(mine, column)), 4) for column in _TIMES},
    )
    plain, gate = by_way[PLAIN], by_way[GATE]
    for one in by_way.values():
        one["all"] = _saved(one["frame_ms"], plain["frame_ms"])
        one["changed"] = _saved(one["changed_ms"], plain["changed_ms"])
        one["p95"] = round(100 * one["p95_ms"] / plain["frame_ms"], 2)
        one["gate"] = _saved(one["frame_ms"], gate["frame_ms"])
    return {**by_way, "frames": int(rows[0]["frames"]), "changed": int(rows[0]["changed"])}


def _saved(time_ms: float, of_ms: float) -> float:
    """Time saved [%]."""
    return round(100 * (1 - time_ms / of_ms), 2)
