"""Table 4 of DeepCache: time of block matchers, and the share of a frame that they match.

Frames of 227 by 227 px are matched with the previous frame, and with the frame five before, as in a device
that answers six times per second. All methods process the same frames, one after the other, on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.text import percent
from nearsight.common.video.block_search import HistogramMatcher, SearchMatcher, exhaustive, three_step
from nearsight.common.video.matching import SETTLED, BlockMatcher, Blocks, Frame, Match, ShiftMatcher
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, leaves, nested, values
from nearsight.experiments.studies.deepcache.clips import NO_VIDEOS, clip_of, names_of
from nearsight.experiments.studies.deepcache.ways import timed

_SIDE = 227
_APART = (1, 5)
"""Distances between a frame and its reference [frames]."""
_AT_ZERO_MS, _SEARCH_MS, _BEHIND = 0.2, 2.0, -3.0
"""Limits of the targets: times of a frame [ms], and matched blocks [points]."""
_NOT_MOVED, _OURS, _EXHAUSTIVE, _DEEPMON = "offset 0", "ours", "exhaustive", "DeepMon"


class _AtZero:
    """Matches blocks at the same place only."""

    def __init__(self) -> None:
        self._blocks = Blocks(_SIDE, _SIDE, 10)
        self._limits = self._blocks.limits(20.0)

    def match(self, frame: Frame, reference: Frame) -> Match:
        return Match((0, 0), self._blocks.squared_errors(frame, reference) < self._limits)


METHODS: Mapping[str, Callable[[], BlockMatcher]] = MappingProxyType(
    {
        _DEEPMON: HistogramMatcher,
        _EXHAUSTIVE: lambda: SearchMatcher(exhaustive, follow=False),
        "three-step": lambda: SearchMatcher(three_step, follow=False),
        "diamond": SearchMatcher,
        "diamond, k = 2, reuse": lambda: SearchMatcher(skip=2, reuse=True),
        _NOT_MOVED: _AtZero,
        _OURS: ShiftMatcher,
        "ours, stride 8": lambda: ShiftMatcher(stride=8),
        "ours, stride 16": lambda: ShiftMatcher(stride=16),
    }
)
_PAPER: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        _DEEPMON: (4.7, 46.1),
        _EXHAUSTIVE: (33.3, 71.5),
        "three-step": (24.7, 70.8),
        "diamond": (19.5, 71.2),
        "diamond, k = 2, reuse": (9.7, 69.5),
    }
)
"""Time on a Nexus 6 [ms], and share of matched blocks [%] in 10,000 images of UCF101."""

_COMPARED = (_DEEPMON, _EXHAUSTIVE, _NOT_MOVED, _OURS)
"""Methods drawn for each clip; the others lie between them."""


class Figure(Experiment):
    """DeepCache's table 4: time and matched blocks of DeepMon, of searches per block, and of ours."""

    name: ClassVar[str] = "deepcache-matching"
    source: ClassVar[str] = "DeepCache, 7.6"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Report if there are no real clips."""
        if names_of(options, ()) == []:
            say(NO_VIDEOS)
        return options

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per distance of frames and clip."""
        return [{"clip": clip, "apart": apart} for apart in _APART for clip in names_of(options)]

    def run(self, options: RunOptions, clip: str, apart: int) -> Iterator[Row]:
        """One row per frame and method."""
        pin_threads()
        pairs = 4 if options.smoke else 80
        shown = clip_of(clip, options.data, options.seed, (_SIDE, _SIDE), pairs * apart + 1)
        frames = shown.frames[::apart]
        matchers = {method: new() for method, new in METHODS.items()}
        for number, (reference, frame) in enumerate(pairwise(frames), 1):
            for method, matcher in matchers.items():
                match, took_ms = timed(partial(matcher.match, frame, reference))
                found = {"match_ms": round(took_ms, 4), "matched": round(float(match.matched.mean()), 5)}
                found |= {"down_px": match.offset[0], "right_px": match.offset[1]}
                yield {"apart": apart, "clip": clip, "method": method, "frame": number, **found}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``table.<frames apart>.<method>``: times [ms], matched [%]; ``searched``: ours, not at offset 0."""
        found = nested(rows, ("apart", "method"), _of_method)
        at_zero = {_frame(row): float(row["matched"]) for row in rows if row["method"] == _NOT_MOVED}
        searched = [row for row in rows if row["method"] == _OURS and at_zero[_frame(row)] < SETTLED]
        return {
            "table": found,
            "searched": {
                "frames": len(searched),
                "share": round(len(searched) / len(at_zero), 3),
                "ms": _times(searched) if searched else {},
                "moved": sum((row["down_px"], row["right_px"]) != ("0", "0") for row in searched),
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Limits of the times, and no fewer matches than the exhaustive search."""
        table, searched = summary["table"], summary["searched"]
        slowest = max(one[_NOT_MOVED]["ms"]["median"] for one in table.values())
        behind, where = min(
            (matched - of[_EXHAUSTIVE]["clips"][clip], f"{clip}, {apart} apart")
            for apart, of in table.items()
            for clip, matched in of[_OURS]["clips"].items()
        )
        longest, how_many = searched["ms"].get("p95", 0.0), f"{percent(searched['share'])} of the frames"
        text = "blocks matched by ours minus those by exhaustive search, smallest [points]"
        return (
            Target.at_most(
                f"a frame at offset 0, median [ms], at most {_AT_ZERO_MS:g}", slowest, _AT_ZERO_MS
            ),
            Target.at_most(
                f"frames for which ours searches a shift, p95 [ms], at most {_SEARCH_MS:g}",
                longest,
                _SEARCH_MS,
                how_many,
            ),
            Target.at_least(f"{text}, at least {_BEHIND:g}", behind, _BEHIND, where, 1),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per method and distance."""
        for apart, method, one in leaves(summary["table"], 2):
            paper_ms, paper_matched = _PAPER.get(method, ("", ""))
            yield {
                "frames apart": apart,
                "method": method,
                "ms": f"{one['ms']['median']:.2f}",
                "p95 ms": f"{one['ms']['p95']:.2f}",
                "matched %": f"{one['matched']:.1f}",
                "clips %": f"{min(one['clips'].values()):.1f} to {max(one['clips'].values()):.1f}",
                "paper ms": paper_ms,
                "paper %": paper_matched,
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw time against matched blocks, and the matched share of each clip."""
        table = results.metrics["table"]
        picture = drawing.new_picture(11.0, 4.6)
        both, clips = picture.subplots(1, 2)
        colours = dict(zip(METHODS, (f"C{number}" for number in range(len(METHODS))), strict=True))
        for apart, marker in zip(table, "os", strict=False):
            for method, one in table[apart].items():
                both.plot(one["ms"]["median"], one["matched"], marker, color=colours[method], ls="")
            both.plot([], [], marker, color="#777777", ls="", label=f"{apart} apart")
        for method, (ms, matched) in _PAPER.items():
            both.plot(ms, matched, "x", color=colours[method])
        both.plot([], [], "x", color="#777777", ls="", label="paper, Nexus 6")
        both.set(title="Time and share of matched blocks", xlabel="ms per frame", ylabel="% matched")
        drawing.plain_logarithmic(both.xaxis)
        both.legend(loc="lower left")
        every = [(apart, clip) for apart in table for clip in table[apart][_OURS]["clips"]]
        names = [f"{Path(clip).stem.removeprefix('ucf101_v_')[:16]}, {apart}" for apart, clip in every]
        for method in METHODS:
            shares = [table[apart][method]["clips"][clip] for apart, clip in every]
            shown = shares if method in _COMPARED else [np.nan] * len(every)
            clips.plot(shown, range(len(names)), "o", ms=6, alpha=0.7, color=colours[method], label=method)
        clips.set_yticks(range(len(names)), names)
        clips.invert_yaxis()
        clips.set(title="Clips, by distance of the frames", xlabel="% matched")
        drawing.legend_below(picture, clips, columns=5)
        drawing.caption(picture, "227 x 227 px, blocks of 10 px, 20 dB; medians of CPU time, one thread")
        return picture


def _frame(row: StoredRow) -> tuple[str, str, str]:
    return row["apart"], row["clip"], row["frame"]


def _of_method(rows: list[StoredRow]) -> dict[str, Any]:
    clips = {clip: 100 * float(np.mean(values(of, "matched"))) for clip, of in grouped(rows, "clip").items()}
    return {
        "ms": _times(rows),
        "matched": round(float(np.mean([*clips.values()])), 2),
        "clips": {clip: round(matched, 2) for clip, matched in clips.items()},
    }


def _times(rows: Sequence[StoredRow]) -> dict[str, float]:
    times = values(rows, "match_ms")
    return {"median": round(float(np.median(times)), 4), "p95": round(float(np.quantile(times, 0.95)), 4)}
