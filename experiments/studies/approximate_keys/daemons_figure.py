"""Standing visitors with real daemons: cost and benefit of the edge's result cache, including the network.

The visitors of `standing_figure` stand before exhibits with handheld phones. Their devices send five photos
per second to an edge with a cloud behind it; all are processes of this machine. The same photos are played
alternately without and with the result cache, for several rounds. Only the edge changes; devices cache
nothing.

CPU time is that of the edge's process during the replay, divided by the number of photos. It includes
messages and background work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from matplotlib.axes import Axes

from nearsight.common.files import write_atomically
from nearsight.common.request.answer import RESULT
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import TABLE_6_3, in_words
from nearsight.experiments.museum.camera.handheld import Filming
from nearsight.experiments.rig.session import Session, Tiers
from nearsight.experiments.rig.walks import write_traces
from nearsight.experiments.studies.answers import (
    answer_numbers,
    latencies_ms,
    median_and_tail,
    photo_row,
    sent_late_ms,
)
from nearsight.experiments.studies.approximate_keys.standing import QUALITY, filmed, transitions_of
from nearsight.experiments.studies.museums import TaughtMuseum, museum_of
from nearsight.experiments.traces.requests import PhotoRequest, read_requests_csv, write_requests_csv

OFF, ON, SEQUENTIAL = "off", "on", "on, sequential test"
CONFIGURATIONS: Mapping[str, Mapping[str, object]] = {
    OFF: {},
    ON: {"result_cache.enabled": True},
    SEQUENTIAL: {"result_cache.enabled": True, "result_cache.error": 0.01},
}
"""Settings of the edge."""
NETWORK = "Medium"
_DEVICE = {"recognizer.prefetch.enabled": False}
_LIVELINESS, _PHOTOS_PER_S = 0.5, 5.0
_VISITORS, _STAYS, _ROUNDS = 6, 3, 3
_CROWD = 60
"""Number of all visitors; those without a device teach the edge."""
_SEPARATOR = "+"
"""Separator of configurations that are played at the same time, as in a smoke run."""
_COLOURS = dict(zip(CONFIGURATIONS, ("#8a8a8a", "#1f6f8b", "#e0a33a"), strict=True))


class Figure(Experiment):
    """Standing visitors with real daemons, without and with the edge's result cache."""

    name: ClassVar[str] = "approximate-daemons"
    source: ClassVar[str] = "beyond approximate-key caching, 5"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per round and configuration; each round begins with another configuration."""
        if options.smoke:
            return [{"turn": 0, "tiers": _SEPARATOR.join((OFF, ON))}]
        names = tuple(CONFIGURATIONS)
        return [
            {"turn": number, "tiers": names[(number + place) % len(names)]}
            for number in range(_ROUNDS)
            for place in range(len(names))
        ]

    def run(self, options: RunOptions, turn: int, tiers: str) -> list[Row]:
        """Play a session; one row per photo."""
        session = _session(options, self.name)
        names = tiers.split(_SEPARATOR)
        played = session.play({name: Tiers(CONFIGURATIONS[name], _DEVICE) for name in names})
        return [
            {
                "round": turn,
                "tiers": name,
                **photo_row(row),
                "edge_cpu_ms": round(one.cpu_s["edge"] * 1e3 / len(one.rows), 4),
            }
            for name, one in played.items()
            for row in one.rows
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``tiers.<configuration>``: over all rounds; ``ratio``: CPU time relative to "off", by round."""
        rounds = numbers.nested(rows, ("round", "tiers"), _cpu_ms)
        return {
            "tiers": numbers.nested(rows, ("tiers",), _configuration),
            "ratio": {
                name: numbers.median_and_range([one[name] / one[OFF] for one in rounds.values()])
                for name in next(iter(rounds.values()))
                if name != OFF
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """A third of the CPU time, few wrong answers, and no increase of latency."""
        found, without = summary["tiers"], summary["tiers"][OFF]
        for name, ratio in summary["ratio"].items():
            one, spread = found[name], f"{ratio['min']:.3f} to {ratio['max']:.3f}"
            text = (
                f"{name}: CPU time of the edge per photo over that without the result cache, "
                "at most a third; median of the rounds"
            )
            yield Target.at_most(text, ratio["median"], 1 / 3, spread, 3)
            text = f"{name}: wrong share of the served answers, at most 1 %"
            yield Target.at_most(text, one["wrong_share"], 0.01)
            yield Target.at_least(f"{name}: share of the photos served, at least 70 %", one["served"], 0.7)
            for tail in ("p50_ms", "p95_ms"):
                before = without[tail]["median"]
                text = f"{name}: {tail[:3]} relative to no result cache, at most 1; medians of the rounds"
                yield Target.at_most(text, one[tail]["median"] / before, 1.0, digits=3)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per configuration."""
        for name, one in summary["tiers"].items():
            yield {
                "result cache": name,
                "photos": one["requests"],
                "served": f"{one['served']:.3f}",
                "wrong of these": f"{one['wrong_share']:.4f}",
                "wrong of all": one["wrong"],
                "no answer": one["failed"],
                "p50 ms": numbers.median_in_words(one["p50_ms"], 1),
                "p95 ms": numbers.median_in_words(one["p95_ms"], 1),
                "edge CPU ms": numbers.median_in_words(one["edge_cpu_ms"], 2),
                "a hit ms": f"{one['compute_ms']['hits']:.2f}",
                "other photos ms": f"{one['compute_ms']['others']:.2f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw CPU time by round, latencies, and shares of the answering tiers."""
        found = results.metrics["tiers"]
        picture = drawing.new_picture(12.0, 4.0)
        cpu, latency, answers = picture.subplots(1, 3, width_ratios=[1.0, 1.3, 1.0])
        _draw_cpu(cpu, found)
        _draw_latencies(latency, results.rows)
        _draw_answers(answers, found)
        drawing.legend_below(picture, latency)
        one = found[OFF]
        rounds = len(one["edge_cpu_ms"]["each"])
        drawing.caption(
            picture,
            f"{one['requests'] // rounds} photos, {_PHOTOS_PER_S:g} a second and visitor, the same in every "
            f"round ({numbers.counted(rounds, 'round')}); to the cloud {in_words(TABLE_6_3[NETWORK])}; "
            "back-off 1.5, sequential test: budget 1 %",
        )
        return picture


def _session(options: RunOptions, name: str) -> Session:
    """Create a session with cloud, link and visitors; missing photos are generated."""
    museum = TaughtMuseum(options, museum_of(options))
    photos, folder = museum.folder / "clips", museum.testbed(name)
    visitors = 1 if options.smoke else _VISITORS
    planned = {f"v{visitor}": _photos(photos, options, visitor) for visitor in range(visitors)}
    return Session(
        folder,
        museum.database,
        write_traces(folder / "traces", planned, options.rng(name)),
        () if options.smoke else transitions_of(options.seed, _CROWD, visitors),
        TABLE_6_3[NETWORK],
        options.seed,
        photos=photos,
    )


def _photos(folder: Path, options: RunOptions, visitor: int) -> tuple[PhotoRequest, ...]:
    """Photos of a visitor's device; the files are kept for the next round."""
    listed = folder / f"v{visitor}.csv"
    if not listed.is_file():
        (folder / f"v{visitor}").mkdir(parents=True, exist_ok=True)
        frames = filmed(options, _CROWD, visitor, _STAYS, Filming(_LIVELINESS, _PHOTOS_PER_S))
        taken = []
        for number, frame in enumerate(frames):
            name = f"v{visitor}/{number:04d}.jpg"
            _, data = cv2.imencode(".jpg", frame.image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            write_atomically(folder / name, data.tobytes())
            taken.append(PhotoRequest(frame.object_id or "", name, round(frame.at_s * 1e3)))
        write_requests_csv(listed, taken)
    return read_requests_csv(listed)


def _cpu_ms(rows: Sequence[StoredRow]) -> float:
    return float(rows[0]["edge_cpu_ms"])


def _configuration(rows: Sequence[StoredRow]) -> dict[str, Any]:
    rounds = list(numbers.grouped(rows, "round").values())
    hits = [row for row in rows if row["grain"] == RESULT]
    others = [row for row in rows if row["answered_by"] and row["grain"] != RESULT]
    wrong = sum(row["answered"] != row["expected"] for row in hits)
    return {
        **answer_numbers(rows),
        **median_and_tail([latencies_ms(one) for one in rounds]),
        "served": round(len(hits) / len(rows), 4),
        "wrong_share": round(wrong / max(1, len(hits)), 5),
        "edge_cpu_ms": numbers.median_and_range([_cpu_ms(one) for one in rounds]),
        "compute_ms": {
            name: round(float(np.mean(numbers.values(some, "edge_compute_ms"))), 3) if some else 0.0
            for name, some in (("hits", hits), ("others", others))
        },
        "sent_late_ms": sent_late_ms(rows),
    }


def _draw_cpu(axes: Axes, found: Mapping[str, Any]) -> None:
    for name, one in found.items():
        each = one["edge_cpu_ms"]["each"]
        axes.plot(range(1, len(each) + 1), each, "o-", color=_COLOURS[name], markersize=4)
    third = found[OFF]["edge_cpu_ms"]["median"] / 3
    axes.axhline(third, color=_COLOURS[OFF], linewidth=0.8, linestyle="--")
    axes.annotate("a third", (1, third), xytext=(0, 4), textcoords="offset points", fontsize=8)
    axes.set(title="CPU time of the edge per photo", xlabel="round", ylabel="CPU time [ms]", ylim=(0, None))
    axes.set_xticks(range(1, len(found[OFF]["edge_cpu_ms"]["each"]) + 1))


def _draw_latencies(axes: Axes, rows: Sequence[StoredRow]) -> None:
    for name, mine in numbers.grouped(rows, "tiers").items():
        latencies, label = latencies_ms(mine), f"result cache {name}"
        drawing.distribution(axes, latencies, whole=len(mine), color=_COLOURS[name], label=label)
    axes.axhline(0.95, color="#8a8a8a", linewidth=0.8, linestyle="--")
    axes.set(
        title="Latency, all rounds",
        xlabel="latency [ms]",
        ylabel="share answered within …",
        xscale="log",
        ylim=(0, 1),
    )


def _draw_answers(axes: Axes, found: Mapping[str, Any]) -> None:
    shares = {
        "result cache": [one["served"] for one in found.values()],
        "edge, otherwise": [one["answered_by"]["edge"] - one["served"] for one in found.values()],
        "cloud": [one["answered_by"]["cloud"] for one in found.values()],
    }
    colours = dict(zip(shares, ("#1f6f8b", "#9cc3d0", "#c9c9c9"), strict=True))
    drawing.stacked_bars(axes, list(found), shares, colours)
    for place, one in enumerate(found.values()):
        axes.annotate(f"{one['wrong']} wrong", (1.0, place), xytext=(3, -3), textcoords="offset points")
    axes.grid(visible=False, axis="y")
    axes.set(title="Answered by", xlabel="share of the photos", xlim=(0, 1.22))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=8)
