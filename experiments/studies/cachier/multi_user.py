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

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.numbers import median_and_range, median_in_words
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.edge_bench import EdgeBench
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.rig.tiers import teach_catalogue
from nearsight.experiments.rig.warming import cached_objects
from nearsight.experiments.studies.cachier.edge_profile import EdgeProfiles, ProfileAmount
from nearsight.experiments.studies.cachier.fig3_2 import LSH, PIPELINES
from nearsight.experiments.studies.cachier.museums import dataset_of, museum_folder, museum_of
from nearsight.experiments.traces.plan import photos_by_object

if TYPE_CHECKING:
    from nearsight.common.recognition.models import Features
    from nearsight.common.recognition.settings import RecognitionSettings

NONE, BOUNDED, BALANCED = "none", "bounded", "load-balanced"
METHODS = (NONE, BOUNDED, BALANCED)
NETWORK = LinkShape(rtt_ms=80.0)
LIGHT_LOAD = 0.1
"""How much slower than without it a method may be where nobody queues."""
_TIMEOUT_S = 5.0
_EDGE = "busy"


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

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        return tuple(
            Cell(f"{number}-{method}", {"repetition": number, "method": method})
            for number in range(_plan(options).repetitions)
            for method in METHODS
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        plan = _plan(options)
        method, number = str(cell.parameters["method"]), int(cell.parameters["repetition"])
        dataset = dataset_of(options, museum_of(options))
        museum = museum_folder(options.museums, museum_of(options)).resolve()
        teach_catalogue(
            museum, museum / "cloud.db", threads=os.cpu_count() or 1, progress=lambda _d, _of: None
        )
        photos = dict(list(photos_by_object(dataset).items())[: plan.objects])
        profile = self._profiles.of(
            museum / f"profile-{self.name}.json", PIPELINES[LSH], dataset, plan.profile, options.seed
        )
        settings = {
            **{f"recognition.{key}": str(value) for key, value in PIPELINES[LSH].items()},
            "cache.profile": str(profile),
            "multi_user": method,
            "server.workers": "1",
        }
        rng = options.rng(self.name, number)  # the same photos for all methods
        streams = [_draw(photos, round(rate * plan.seconds), rng) for rate in plan.rates]
        earlier = [(f"earlier-{turn}", name) for turn in range(plan.reports) for name in photos]
        folder = museum.parent.parent / "testbed" / self.name
        bench = EdgeBench(
            folder,
            database=museum / "cloud.db",
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
        groups: dict[tuple[str, str], list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["method"], f"{float(row['rate']):g}"].append(row)
        found: dict[str, Any] = {}
        for (method, rate), group in groups.items():
            found.setdefault(method, {})[rate] = _stream(group)
        return {"methods": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
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

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                rate,
                method,
                median_in_words(one["p50_ms"], 0),
                median_in_words(one["p95_ms"], 0),
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

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.cachier.multi_user_picture import draw  # noqa: PLC0415

        return draw(results)


def _measure(
    bench: EdgeBench, photos: Sequence[tuple[str, Features]], rate: float, from_s: float
) -> list[Row]:
    """One stream; rows of the photos from a time on."""
    from nearsight.experiments.studies.cachier.request_stream import stream  # noqa: PLC0415

    sent = stream(bench.devices[_EDGE], [features for _, features in photos], rate, _TIMEOUT_S)
    cached = cached_objects(bench.edges[_EDGE]) or 0
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


def _draw(
    photos: Mapping[str, Sequence[str]], count: int, rng: np.random.Generator
) -> list[tuple[str, Features]]:
    """Photos of objects, all as likely."""
    from nearsight.common.recognition.extraction import OrbExtractor  # noqa: PLC0415
    from nearsight.common.recognition.images import load_image  # noqa: PLC0415
    from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415

    settings: RecognitionSettings = RecognitionSettings()
    extractor = OrbExtractor(settings.fast_threshold)
    names = list(photos)
    drawn = []
    for index in rng.integers(len(names), size=count):
        paths = photos[names[index]]
        image = load_image(paths[int(rng.integers(len(paths)))], settings.limits)
        drawn.append((names[index], extractor.extract(image, settings.query_features)))
    return drawn


def _plan(options: RunOptions) -> Plan:
    return SMOKE if options.smoke else FULL


def _stream(rows: Sequence[StoredRow]) -> dict[str, Any]:
    repetitions: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        repetitions[row["repetition"]].append(row)
    # Of all photos: those that failed count with the time until they did.
    latencies = [[float(row["latency_ms"]) for row in group] for group in repetitions.values()]
    return {
        **{
            f"p{percent}_ms": median_and_range([float(np.nanpercentile(one, percent)) for one in latencies])
            for percent in (50, 95)
        },
        "edge_share": round(float(np.mean([row["answered_by"] == "edge" for row in rows])), 4),
        "cached": round(float(np.median([int(row["cached"]) for row in rows]))),
        "failed": sum(not row["answered_by"] for row in rows),
        "sent_late_p99_ms": round(float(np.percentile([float(row["late_ms"]) for row in rows], 99)), 2),
        "requests": len(rows),
    }


def _ratio(methods: Mapping[str, Any], method: str, rate: str, percentile: str) -> float:
    with_method, without = (methods[name][rate][percentile]["median"] for name in (method, NONE))
    return round(float(with_method) / float(without), 4)
