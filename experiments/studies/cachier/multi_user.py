"""Benefit of bounded compute time and load balancing for an edge with many users (dissertation, 3.5.1).

One edge has one worker and the paper's classifier. The cloud is 80 ms away over a link that is never
saturated. Visitors show photos of 120 objects with equal probability, at a constant rate that increases
from stream to stream. With all 120 objects in its cache the edge is fast for one visitor, but too slow for
many, whose requests queue. ``bounded`` keeps the cache so small that lookups keep up. ``load-balanced``
immediately forwards requests that would have to wait.

Features are sent, so that the sender needs little computation. The edge adapts to the load during the first
half of a stream; the second half is measured. A photo without an answer counts with at least the timeout of
5 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.edge_bench import FIXED
from nearsight.experiments.rig.replay import Ledger, replay
from nearsight.experiments.rig.tiers import CATALOGUE, deployed, endpoint_of
from nearsight.experiments.rig.warming import WarmUp
from nearsight.experiments.studies.answers import (
    counted_latencies_ms,
    median_and_tail,
    photo_row,
    sent_late_ms,
)
from nearsight.experiments.studies.museums import TaughtMuseum, museum_of
from nearsight.experiments.studies.profiles import LSH, EdgeProfiles, ProfileAmount
from nearsight.experiments.traces.plan import PlannedPhoto

NONE, BOUNDED, BALANCED = "none", "bounded", "load-balanced"
METHODS = (NONE, BOUNDED, BALANCED)
NETWORK = LinkShape(rtt_ms=80.0)
LIGHT_LOAD = 0.1
"""Largest relative increase in latency by a method at light load, where no requests queue."""
_TIMEOUT_S = 5.0
_ASKS = RecognizerSettings(timeout_s=_TIMEOUT_S, max_pending=4096, prefetch=PrefetchSettings(enabled=False))
_EDGE = "busy"
Stream = tuple[Sequence[PlannedPhoto], Mapping[Path, Features]]
"""Planned photos with their times, and the features that were extracted from each photo."""
_COLOURS = {NONE: "#c2571a", BOUNDED: "#e0a33a", BALANCED: "#1f6f8b"}
_NAMES = {NONE: "no method", BOUNDED: "bounded compute time", BALANCED: "load balancing"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement."""

    objects: int
    """Number of objects that visitors request."""
    rates: tuple[float, ...]
    """Rates of the streams, ascending [photos/s]."""
    seconds: float
    """Length of each stream [s]; the first half is not counted."""
    repetitions: int
    """Number of repetitions, each with new daemons."""
    reports: int
    """Number of earlier requests per object that the edge received."""
    profile: ProfileAmount


FULL = Plan(
    objects=120,
    rates=(2.0, 8.0, 16.0, 32.0),
    seconds=10.0,
    repetitions=2,
    reports=5,
    profile=ProfileAmount((1, 20, 40, 80, 120), subsets=2, queries=12),
)
SMOKE = Plan(
    objects=12,
    rates=(5.0, 20.0),
    seconds=0.8,
    repetitions=1,
    reports=3,
    profile=ProfileAmount((1, 6, 12), subsets=2, queries=3),
)


class Figure(Experiment):
    """Latency at one edge under growing load: no method, bounded compute time, load balancing."""

    name: ClassVar[str] = "multi-user"
    source: ClassVar[str] = "Cachier dissertation, 3.5.1"

    def __init__(self) -> None:
        self._profiles = EdgeProfiles()

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per repetition and method."""
        repetitions = range((SMOKE if options.smoke else FULL).repetitions)
        return [{"repetition": number, "method": method} for number in repetitions for method in METHODS]

    def run(self, options: RunOptions, repetition: int, method: str) -> Iterator[Row]:
        """Send the streams one after the other; one row per counted photo."""
        plan = SMOKE if options.smoke else FULL
        museum = TaughtMuseum(options, museum_of(options))
        photos = dict(list(museum.photos.items())[: plan.objects])
        settings = {
            **self._profiles.settings(museum, self.name, LSH, plan.profile),
            "multi_user": method,
            "server.workers": "1",
        }
        rng = options.rng(self.name, repetition)  # the same photos for all methods
        streams = [_stream(photos, rate, plan.seconds, rng) for rate in plan.rates]
        earlier = [(f"earlier-{turn}", name) for turn in range(plan.reports) for name in photos]
        with (
            deployed(
                museum.testbed(self.name),
                database=museum.database,
                edges={_EDGE: {**FIXED, **settings}},
                network=NETWORK,
                seed=options.seed,
            ) as tiers,
            Recognizer(endpoint_of(tiers.edges[_EDGE]), None, CATALOGUE, settings=_ASKS) as device,
        ):
            tiers.warm_up(earlier, {_EDGE: None}, with_models=True, timeout_s=30.0)
            tiers.link.reshape(NETWORK)
            edge = WarmUp(endpoint_of(tiers.edges[_EDGE]))
            for rate, stream in zip(plan.rates, streams, strict=True):
                for row in _measure(device, edge, stream, plan.seconds / 2):
                    yield {"method": method, "rate": rate, "repetition": repetition, **row}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``methods.<method>.<rate>``: median latencies over repetitions; shares of all counted photos."""
        found = numbers.nested(rows, ("method", "rate"), _numbers)
        return {
            "methods": {
                method: {f"{float(rate):g}": one for rate, one in streams.items()}
                for method, streams in found.items()
            }
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Each method reduces latency under load, and costs little at light load."""
        methods = summary["methods"]
        lightest, heaviest = (pick(methods[NONE], key=float) for pick in (min, max))
        for method in (BOUNDED, BALANCED):
            for percentile in ("p50_ms", "p95_ms"):
                ratio = _ratio(methods, method, heaviest, percentile)
                text = f"{method}, {heaviest} photos/s: {percentile[:3]} over that without a method, below 1"
                yield Target(text, ratio, ratio < 1)
            failed = methods[method][heaviest]["failed"]
            yield Target.at_most(f"{method}, {heaviest} photos/s: photos without answer", failed, 0)
            ratio = _ratio(methods, method, lightest, "p50_ms")
            text = (
                f"{method}, {lightest} photos/s: p50 over that without a method, at most {1 + LIGHT_LOAD:g}"
            )
            yield Target.at_most(text, ratio, 1 + LIGHT_LOAD)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per rate and method."""
        for rate in summary["methods"][NONE]:
            for method, streams in summary["methods"].items():
                one = streams[rate]
                yield {
                    "photos/s": rate,
                    "method": method,
                    "p50 ms (least to most)": numbers.median_in_words(one["p50_ms"], 0),
                    "p95 ms": numbers.median_in_words(one["p95_ms"], 0),
                    "at the edge": f"{100 * one['edge_share']:.0f} %",
                    "cached": one["cached"],
                    "no answer": one["failed"],
                    "photos": one["requests"],
                }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw latency, and share of the edge's answers, over the rate."""
        methods = results.metrics["methods"]
        picture = drawing.new_picture(10.5, 3.8)
        latency, by_edge = picture.subplots(1, 2, width_ratios=[1.4, 1])
        rates = [float(rate) for rate in methods[NONE]]
        for method, streams in methods.items():
            _draw_latency(latency, method, streams)
            shares = [100 * one["edge_share"] for one in streams.values()]
            by_edge.plot(rates, shares, "o-", color=_COLOURS[method], label=_NAMES[method])
        for axes in (latency, by_edge):
            axes.set_xscale("log")
            axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
            axes.minorticks_off()
            axes.set_xlabel("photos per second")
        drawing.plain_logarithmic(latency.yaxis)
        latency.set(ylabel="latency [ms]", title="Latency: median, and 95th percentile dashed")
        by_edge.set(ylim=(-3, 103), ylabel="photos [%]", title="Answered by the edge")
        latency.legend(loc="upper left")
        drawing.caption(
            picture,
            f"One edge with one worker and the paper's classifier; a cloud {NETWORK.rtt_ms:g} ms away\n"
            "second half of each stream; lines: range of the repetitions; "
            f"photos without an answer count with at least {_TIMEOUT_S:g} s",
        )
        return picture


def _measure(device: Recognizer, edge: WarmUp, stream: Stream, from_s: float) -> list[Row]:
    """Send a stream; return rows of the photos from time ``from_s`` on."""
    plan, photos = stream
    sent = replay(plan, photos, device, Ledger(_EDGE, _EDGE), timeout_s=_TIMEOUT_S)
    cached = edge.state().cached
    return [{**photo_row(one), "cached": cached} for one in sent if one.time_s >= from_s]


def _stream(
    photos: Mapping[str, Sequence[str]], rate: float, seconds: float, rng: np.random.Generator
) -> Stream:
    """Photos of random objects at equal intervals; extracted before, as the sender shares the machine."""
    settings = RecognitionSettings()
    names, plan, extracted = list(photos), [], {}
    for number, index in enumerate(rng.integers(len(names), size=round(rate * seconds))):
        paths = photos[names[index]]
        path = Path(paths[int(rng.integers(len(paths)))])
        extracted[path] = extract_query(path, settings)
        plan.append(PlannedPhoto(number / rate, names[index], path))
    return plan, extracted


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    repetitions = numbers.grouped(rows, "repetition").values()
    return {
        **median_and_tail(counted_latencies_ms(group, _TIMEOUT_S) for group in repetitions),
        "edge_share": numbers.share(row["answered_by"] == "edge" for row in rows),
        "cached": round(float(np.median(numbers.values(rows, "cached")))),
        "failed": sum(not row["answered_by"] for row in rows),
        "sent_late_p99_ms": sent_late_ms(rows),
        "requests": len(rows),
    }


def _ratio(methods: Mapping[str, Any], method: str, rate: str, percentile: str) -> float:
    with_method, without = (methods[name][rate][percentile]["median"] for name in (method, NONE))
    return round(float(with_method) / float(without), 4)


def _draw_latency(axes: Axes, method: str, streams: Mapping[str, Any]) -> None:
    rates = [float(rate) for rate in streams]
    for percentile, line in (("p50_ms", "o-"), ("p95_ms", "^--")):
        medians, reach = drawing.error_bars([one[percentile] for one in streams.values()], "median")
        label = _NAMES[method] if percentile == "p50_ms" else None
        axes.plot(rates, medians, line, color=_COLOURS[method], label=label, markersize=4)
        axes.vlines(rates, medians - reach[0], medians + reach[1], color=_COLOURS[method], alpha=0.4)
