"""Live streams against frames as photos: age of answers, recognition, and accuracy of outlines.

A phone moves past exhibits and films 30 frames of 720p per second, 5 ms from an edge. The cloud, to which the
edge forwards unknown frames, is another 20 ms away. Each clip is played once per contender in real time.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.text import percent
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, leaves, nested, share, values
from nearsight.experiments.museum.camera.handheld import Frame
from nearsight.experiments.museum.settings import UNKNOWN_FROM, MuseumSettings
from nearsight.experiments.studies.deepcache.walking import (
    FRAMES_PER_S,
    TO_EDGE,
    Screen,
    Walk,
    clip_of,
    in_real_time,
    row_of,
    running,
)
from nearsight.experiments.studies.museums import SMOKE_MUSEUM, TaughtMuseum

_MUSEUM = MuseumSettings(objects=60, photos_per_object=1, unknown_photos=0)
_STAYS, _DWELL_S = 5, 2.4
_LAST = 3
"""Index of the clip with an exhibit that is not in the catalogue."""
_KNOWN, _WITH_UNKNOWN = "known exhibits", "one is not in the catalogue"
OWN, ASKS = "own cache", "asks the edge"
"""Devices with a local object cache, as by default, and devices that always ask the edge."""
EVERY, ONE, STREAM = "each frame a photo", "one photo at a time", "stream"
_COLOURS = {EVERY: "#c2571a", ONE: "#e0a33a", STREAM: "#1f6f8b"}
_WAIT_S = 10.0
_OLD_MS = 150.0
_NONE = "none"
"""In place of percentiles without any value."""


class Figure(Experiment):
    """Live video: age of answers, recall and wrong answers, outlines, CPU time; a stream against photos."""

    name: ClassVar[str] = "stream-age"
    source: ClassVar[str] = "beyond DeepCache's 7.1"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per device and clip; the last clip has an exhibit that is not in the catalogue."""
        played = ((OWN, 0), (ASKS, 0), (OWN, 1), (ASKS, 1), (OWN, 2), (OWN, _LAST))
        return [{"device": device, "clip": clip} for device, clip in played[: 1 if options.smoke else None]]

    def run(self, options: RunOptions, device: str, clip: int) -> Iterator[Row]:
        """Play one clip with each contender; one row per frame."""
        pin_threads()
        museum = TaughtMuseum(options, SMOKE_MUSEUM if options.smoke else _MUSEUM)
        seeds = options.seed, 1_000 * options.seed + clip
        frames = clip_of(museum.folder / "clips", seeds[0], _walk(clip, options), seeds[1])
        exhibits = SMOKE_MUSEUM.objects if options.smoke else _MUSEUM.objects
        walk = _WITH_UNKNOWN if clip == _LAST else _KNOWN
        with running(museum.testbed(self.name), museum.database, exhibits, options.seed) as tiers:
            for contender in np.roll([EVERY, ONE, STREAM], clip).tolist():
                screen, cpu_ms = _played(contender, device, frames, tiers)
                played = {"device": device, "clip": clip, "walk": walk, "contender": contender}
                for number, (frame, shown) in enumerate(zip(frames, screen.shown, strict=True)):
                    yield {**played, **row_of(number, frame, shown), "cpu_ms": cpu_ms}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``devices.<device>.<walk>.<contender>``: ages [ms], recall, wrong, outlines, CPU time."""
        return {"devices": nested(rows, ("device", "walk", "contender"), _of_contender)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Age of answers; recall and wrong answers relative to the other contenders."""
        found = summary["devices"][OWN][_KNOWN]
        stream, one, every = (found[contender] for contender in (STREAM, ONE, EVERY))
        text = "stream, known exhibits, age of {}, p95, at most 150 ms"
        most = max(one["recall"]["mean"], every["recall"]["mean"])
        cloud = f'answers "unknown" are from the cloud, p50 [ms]: {_said(stream["unknown_ms"], "p50")}'
        stays, single, each = (one["recall"]["each"] for one in (stream, one, every))
        clips = f"clips: {stays}; one photo at a time: {single}, each frame: {each}"
        right = "share of the frames of exhibits with the right answer, no less than with photos"
        wrong = "share of the frames with a wrong answer, no more than with photos"
        return (
            Target.at_most(text.format("answers with an object"), stream["known_ms"]["p95"], _OLD_MS),
            Target.at_most(text.format("all shown answers"), stream["answered_ms"]["p95"], _OLD_MS, cloud),
            Target.at_least(right, stream["recall"]["mean"], most, clips),
            Target.at_most(wrong, stream["wrong"], min(one["wrong"], every["wrong"])),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per device, walk and contender."""
        for device, walk, contender, one in leaves(summary["devices"], 3):
            yield {
                "device": device,
                "walk": walk,
                "frames are sent as": contender,
                "age p50, p95, max [ms]": _said(one["answered_ms"], "p50", "p95", "max"),
                "of known ones": _said(one["known_ms"], "p50", "p95"),
                "shown p50, p95": _said(one["age_ms"], "p50", "p95"),
                "recall": f"{one['recall']['mean']:.3f}",
                "wrong": f"{one['wrong']:.3f}",
                "overlap p50, p5": _said(one["overlap"], "p50", "p5", digits=3),
                "off p50, p95 [px]": _said(one["off_px"], "p50", "p95", digits=1),
                "CPU [ms/frame]": f"{one['cpu_ms']:.1f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw ages, recall and wrong answers, outlines and CPU time for devices with default settings."""
        found = results.metrics["devices"][OWN][_KNOWN]
        shown = [row for row in results.rows if (row["device"], row["walk"]) == (OWN, _KNOWN)]
        groups = grouped(shown, "contender")
        picture = drawing.new_picture(13.0, 3.9)
        ages, right, outlines, cpu = picture.subplots(1, 4, width_ratios=[1.3, 1.0, 1.2, 0.8])
        for contender, colour in _COLOURS.items():
            rows = groups[contender]
            drawing.distribution(ages, _numbers(rows, "answered_ms"), color=colour, label=contender)
            drawing.distribution(outlines, _numbers(rows, "off_px"), color=colour)
        ages.axvline(_OLD_MS, color="#8a8a8a", linewidth=0.8, linestyle="--")
        ages.set(title="Age of answers at their arrival", xlabel="age [ms]", ylabel="share of the answers")
        ages.tick_params(axis="x", labelsize=7)
        outlines.set(title="Error of the corners", xlabel="distance [px]")
        outlines.set_ylabel("share of the outlines")
        for axes in (ages, outlines):
            drawing.plain_logarithmic(axes.xaxis)
        places, colours = np.arange(len(_COLOURS)), list(_COLOURS.values())
        bars = right.bar(places, [found[one]["recall"]["mean"] for one in _COLOURS], color=colours)
        wrong = [
            f"{percent(found[one]['recall']['mean'], 1)}\n{percent(found[one]['wrong'], 1)} wrong"
            for one in _COLOURS
        ]
        right.bar_label(bars, wrong, fontsize=8)
        right.set(title="Right answer shown", ylabel="share of the frames of exhibits", ylim=(0, 1.15))
        bars = cpu.bar(places, [found[one]["cpu_ms"] for one in _COLOURS], color=colours)
        cpu.bar_label(bars, fmt="%.1f", fontsize=8)
        cpu.set(title="CPU time of the device", ylabel="ms per frame")
        for axes in (right, cpu):
            axes.set_xticks(places, ["each\nframe", "one at\na time", "stream"])
        drawing.legend_below(picture, ages)
        drawing.caption(
            picture,
            f"Clips of a handheld phone: {found[STREAM]['clips']}, with {found[STREAM]['frames']} frames, "
            f"{FRAMES_PER_S:g} a second; edge {TO_EDGE.rtt_ms / 2:g} ms away; devices have a cache",
        )
        return picture


def _walk(clip: int, options: RunOptions) -> Walk:
    if options.smoke:
        return Walk((0, 1), 0.6, (320, 240))
    first = _STAYS * clip
    exhibits = [*range(first, first + _STAYS)]
    if clip == _LAST:
        exhibits[_STAYS // 2] = UNKNOWN_FROM
    return Walk(tuple(exhibits), _DWELL_S)


def _played(
    contender: str, device: str, frames: Sequence[Frame], tiers: tuple[str, str]
) -> tuple[Screen, float]:
    """Play a clip; return what is shown over each frame, and CPU time of the device per frame [ms]."""
    settings = RecognizerSettings(
        max_pending=1 if contender == ONE else 64, prefetch=PrefetchSettings(enabled=device == OWN)
    )
    screen = Screen(len(frames))
    with Recognizer(*tiers, "museum", settings=settings) as recognizer:
        recognizer.recognize_blocking(frames[len(frames) // 2].image)  # opens the connection
        before_s = time.process_time()
        if contender == STREAM:
            with recognizer.stream() as stream:
                for number, frame in in_real_time(frames):
                    screen.push(number, frame.image, stream)
        else:
            for number, frame in in_real_time(frames):
                screen.ask(number, frame.image, recognizer)
        cpu_s = time.process_time() - before_s
        deadline_s = time.monotonic() + _WAIT_S
        while recognizer.pending and time.monotonic() < deadline_s:
            time.sleep(0.05)
    return screen, round(cpu_s * 1e3 / len(frames), 3)


def _of_contender(rows: Sequence[StoredRow]) -> dict[str, Any]:
    clips = grouped(rows, "clip")
    known = [row for row in rows if row["answer"]]
    unknown = [row for row in rows if not row["answer"]]
    recalls = [share(row["shown"] == row["true"] for row in clip if row["true"]) for clip in clips.values()]
    return {
        "clips": len(clips),
        "frames": len(rows),
        "done": dict(Counter(row["done"] for row in rows)),
        "answered_ms": _percentiles(rows, "answered_ms"),
        "known_ms": _percentiles(known, "answered_ms"),
        "unknown_ms": _percentiles(unknown, "answered_ms"),
        "age_ms": _percentiles(rows, "age_ms"),
        "recall": {"mean": round(float(np.mean(recalls)), 4), "each": recalls},
        "wrong": share(row["shown"] not in {"", row["true"]} for row in rows),
        "overlap": _percentiles(rows, "overlap", 4),
        "off_px": _percentiles(rows, "off_px", 2),
        "cpu_ms": round(float(np.mean(values(rows, "cpu_ms"))), 2),
    }


def _percentiles(rows: Sequence[StoredRow], column: str, digits: int = 1) -> dict[str, float]:
    """Percentiles of a column; NaN if it is empty in all rows."""
    found = _numbers(rows, column) or [math.nan]
    at = {"p5": 5, "p50": 50, "p95": 95, "max": 100}
    return {name: round(float(np.percentile(found, percent)), digits) for name, percent in at.items()}


def _said(found: Mapping[str, float], *names: str, digits: int = 0) -> str:
    """Format some of the percentiles."""
    numbers = [found[name] for name in names]
    return _NONE if any(map(math.isnan, numbers)) else ", ".join(f"{one:.{digits}f}" for one in numbers)


def _numbers(rows: Sequence[StoredRow], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column]]
