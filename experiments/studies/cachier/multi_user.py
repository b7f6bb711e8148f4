"""What bounded compute time and load balancing are worth when many ask one edge (dissertation, 3.5.1).

One edge with one worker and the paper's classifier, a cloud 80 ms away over a link that is never full.
Visitors show photos of 120 objects, each as likely as the others, at a steady rate that grows from stream to
stream. With all 120 in its cache the edge is quick for one visitor, and too slow for many: they queue.
``bounded`` keeps the cache so small that lookups keep up; ``load-balanced`` passes on at once what would have
to wait.

Features are sent, so that the sender costs little. The first half of a stream lets the edge see the load; the
second is measured.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.errors import NearsightError
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Table,
    Target,
    cells_of,
)
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.edge_bench import EdgeBench
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.rig.warming import WarmUp
from nearsight.experiments.studies.answers import median_and_tail, sent_late_ms
from nearsight.experiments.studies.museums import TaughtMuseum, museum_of
from nearsight.experiments.studies.profiles import LSH, EdgeProfiles, ProfileAmount

NONE, BOUNDED, BALANCED = "none", "bounded", "load-balanced"
METHODS = (NONE, BOUNDED, BALANCED)
NETWORK = LinkShape(rtt_ms=80.0)
LIGHT_LOAD = 0.1
"""How much slower than without it a method may be where nobody queues."""
_TIMEOUT_S = 5.0
_EDGE = "busy"
_GRACE_S = 2.0
_COLOURS = {NONE: "#c2571a", BOUNDED: "#e0a33a", BALANCED: "#1f6f8b"}
_NAMES = {NONE: "no method", BOUNDED: "bounded compute time", BALANCED: "load balancing"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    objects : int
        That visitors ask for.
    rates : tuple of float
        Photos per second, rising.
    seconds : float
        Of each stream; the first half is not counted.
    repetitions : int
        With daemons started anew.
    reports : int
        Requests per object that the edge has heard of before.
    profile : ProfileAmount
        The offline analysis.
    """

    objects: int
    rates: tuple[float, ...]
    seconds: float
    repetitions: int
    reports: int
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

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """One per repetition and method."""
        repetitions = range((SMOKE if options.smoke else FULL).repetitions)
        return cells_of("{repetition}-{method}", repetition=repetitions, method=METHODS)

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:
        """Send the streams, one after the other; one row per counted photo."""
        plan = SMOKE if options.smoke else FULL
        method, number = cell.parameters["method"], cell.parameters["repetition"]
        museum = TaughtMuseum(options, museum_of(options))
        photos = dict(list(museum.photos.items())[: plan.objects])
        settings = {
            **self._profiles.settings(museum, self.name, LSH, plan.profile),
            "multi_user": method,
            "server.workers": "1",
        }
        rng = options.rng(self.name, number)  # the same photos for all methods
        streams = [_drawn(photos, round(rate * plan.seconds), rng) for rate in plan.rates]
        earlier = [(f"earlier-{turn}", name) for turn in range(plan.reports) for name in photos]
        bench = EdgeBench(
            museum.testbed(self.name),
            database=museum.database,
            edges={_EDGE: settings},
            device=RecognizerSettings(
                timeout_s=_TIMEOUT_S, max_pending=4096, prefetch=PrefetchSettings(enabled=False)
            ),
            network=NETWORK,
            seed=options.seed,
        )
        with termination_as_interrupt(), bench:
            bench.warm_up(earlier, {}, timeout_s=30.0)
            bench.reshape(NETWORK)
            return [
                {"method": method, "rate": rate, "repetition": number, **row}
                for rate, paths in zip(plan.rates, streams, strict=True)
                for row in _measure(bench, paths, rate, plan.seconds / 2)
            ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``methods.<method>.<rate>``: medians over the repetitions, of counted photos."""
        found = numbers.nested(rows, ("method", "rate"), _stream)
        return {
            "methods": {
                method: {f"{float(rate):g}": one for rate, one in streams.items()}
                for method, streams in found.items()
            }
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Each method is worth it under load, and costs little where nobody queues."""
        methods = summary["methods"]
        lightest, heaviest = (pick(methods[NONE], key=float) for pick in (min, max))
        targets = []
        for method in (BOUNDED, BALANCED):
            for percentile in ("p50_ms", "p95_ms"):
                ratio = _ratio(methods, method, heaviest, percentile)
                text = f"{method}, {heaviest} photos/s: {percentile[:3]} over that without a method, below 1"
                targets.append(Target(text, ratio, ratio < 1))
            failed = methods[method][heaviest]["failed"]
            targets.append(
                Target(f"{method}, {heaviest} photos/s: photos without answer", failed, not failed)
            )
            ratio = _ratio(methods, method, lightest, "p50_ms")
            text = (
                f"{method}, {lightest} photos/s: p50 over that without a method, at most {1 + LIGHT_LOAD:g}"
            )
            targets.append(Target(text, ratio, ratio <= 1 + LIGHT_LOAD))
        return tuple(targets)

    def table(self, summary: Mapping[str, Any]) -> Table:
        """A line per rate and method."""
        rows = [
            (
                rate,
                method,
                numbers.median_in_words(one["p50_ms"], 0),
                numbers.median_in_words(one["p95_ms"], 0),
                f"{100 * one['edge_share']:.0f} %",
                one["cached"],
                one["failed"],
                one["requests"],
            )
            for rate in summary["methods"][NONE]
            for method, streams in summary["methods"].items()
            for one in [streams[rate]]
        ]
        columns = ("photos/s", "method", "p50 ms (least to most)", "p95 ms")
        return (*columns, "at the edge", "cached", "no answer", "photos"), rows

    def draw(self, results: Results) -> drawing.Picture:
        """Latency, and what the edge answered, over the rate."""
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
        latency.set_yscale("log")
        drawing.plain_logarithmic(latency.yaxis)
        latency.set(ylabel="ms", title="Latency: median, and 95th percentile dashed")
        by_edge.set(ylim=(-3, 103), ylabel="%", title="Answered by the edge")
        latency.legend(loc="upper left")
        drawing.caption(
            picture,
            f"One edge with one worker and the paper's classifier; a cloud {NETWORK.rtt_ms:g} ms away",
        )
        return picture


def _measure(
    bench: EdgeBench, photos: Sequence[tuple[str, Features]], rate: float, from_s: float
) -> list[Row]:
    """One stream; rows of the photos from a time on."""
    sent = stream(bench.devices[_EDGE], [features for _, features in photos], rate, _TIMEOUT_S)
    cached = WarmUp(bench.edges[_EDGE]).cached_objects() or 0
    return [
        {
            "at_s": round(one.at_s, 4),
            "late_ms": round(one.late_ms, 3),
            "expected": object_id,
            "outcome": type(one.outcome).__name__ if one.outcome is not None else "lost",
            "answered_by": one.answered_by,
            "latency_ms": round(one.latency_ms, 3),
            "cached": cached,
        }
        for (object_id, _), one in zip(photos, sent, strict=True)
        if one.at_s >= from_s
    ]


@dataclass(slots=True)
class Sent:
    """One photo and what became of it.

    Attributes
    ----------
    at_s : float
        When it was due, from the start of the stream [s].
    late_ms : float
        How much later it was really sent [ms].
    latency_ms : float
        From sending to the outcome [ms]; NaN while there is none.
    outcome : Recognition or NearsightError, optional
        What came.
    """

    at_s: float
    late_ms: float
    latency_ms: float = math.nan
    outcome: Recognition | NearsightError | None = None

    @property
    def answered_by(self) -> str:
        """The tier; empty if none answered."""
        return self.outcome.answered_by if isinstance(self.outcome, Recognition) else ""


def stream(
    recognizer: Recognizer, photos: Sequence[Features], per_second: float, timeout_s: float
) -> tuple[Sent, ...]:
    """Send the photos, evenly spaced, and wait for all outcomes.

    Parameters
    ----------
    recognizer : Recognizer
        Who asks the tier.
    photos : sequence of Features
        Extracted before: the sender shares the machine with what is measured.
    per_second : float
        How many.
    timeout_s : float
        Deadline of each.
    """
    done = threading.Semaphore(0)
    sent: list[Sent] = []
    start_s = perf_counter()
    pause = threading.Event()
    for number, photo in enumerate(photos):
        at_s = number / per_second
        due_s = start_s + at_s
        while (wait_s := due_s - perf_counter()) > 0:
            pause.wait(wait_s)
        now_s = perf_counter()
        one = Sent(at_s, (now_s - due_s) * 1e3)
        sent.append(one)

        def note(outcome: Recognition | NearsightError, one: Sent = one, sent_s: float = now_s) -> None:
            one.outcome, one.latency_ms = outcome, (perf_counter() - sent_s) * 1e3
            done.release()

        recognizer.recognize(photo, note, timeout_s=timeout_s)
    deadline_s = perf_counter() + timeout_s + _GRACE_S
    for _ in sent:
        done.acquire(timeout=max(0.0, deadline_s - perf_counter()))
    return tuple(sent)


def _drawn(
    photos: Mapping[str, Sequence[str]], count: int, rng: np.random.Generator
) -> list[tuple[str, Features]]:
    """Photos of objects, all as likely."""
    settings = RecognitionSettings()
    extractor = OrbExtractor(settings.fast_threshold)
    names = list(photos)
    drawn = []
    for index in rng.integers(len(names), size=count):
        paths = photos[names[index]]
        image = load_image(paths[int(rng.integers(len(paths)))], settings.limits)
        drawn.append((names[index], extractor.extract(image, settings.query_features)))
    return drawn


def _stream(rows: Sequence[StoredRow]) -> dict[str, Any]:
    # Of all photos: those that failed count with the time until they did.
    repetitions = numbers.grouped(rows, "repetition").values()
    return {
        **median_and_tail(numbers.values(group, "latency_ms") for group in repetitions),
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
        medians, reach = drawing.middles([one[percentile] for one in streams.values()], "median")
        label = _NAMES[method] if percentile == "p50_ms" else None
        axes.plot(rates, medians, line, color=_COLOURS[method], label=label, markersize=4)
        axes.vlines(rates, medians - reach[0], medians + reach[1], color=_COLOURS[method], alpha=0.4)
