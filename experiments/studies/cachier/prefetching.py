"""Device prefetching and adaptive extraction against edge cache and cloud (dissertation, chapter 6).

Visitors walk through a museum. Every device sends one photo per second while its visitor looks at an exhibit.
All requests of a repetition are the same for all configurations: only cloud; edge cache; prefetching with 600
features per photo; prefetching with an adaptive number of features. The building reaches the cloud over the
Medium network of table 6.3. Devices reach the edge directly.

As in the paper (6.2.7), the edge has the history of earlier visitors: four fifths of the visitors teach it
through its Prediction service before the measurement. Some of the others have devices. Devices have the
offline analysis of this machine, and start with an empty cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import TABLE_6_3, in_words
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.session import Tiers
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.answers import (
    TIERS,
    answer_numbers,
    latencies_ms,
    median_and_tail,
    photo_row,
    sent_late_ms,
)
from nearsight.experiments.studies.museums import (
    MUSEUM,
    SMOKE_MUSEUM,
    SMOKE_WALKS,
    WALKS,
    TaughtMuseum,
    Walks,
)
from nearsight.experiments.studies.profiles import DEVICE_AMOUNT, ProfileAmount, Profiles, measure_profiles
from nearsight.experiments.traces.visits import Visit, read_visits_csv

ONLY_CLOUD, EDGE_CACHE, FIXED, ADAPTIVE = (
    "only-cloud",
    "edge-cache",
    "prefetching-600",
    "prefetching-adaptive",
)
CONFIGURATIONS = (ONLY_CLOUD, EDGE_CACHE, FIXED, ADAPTIVE)
GENERATED, REAL = "generated", "real"
NETWORK = "Medium"
FIXED_FEATURES = 600
ON_DEVICE = 0.6
TENTH = 0.1
_REAL_EXHIBITS = 60
"""Number of exhibits, sufficient for a smoke run with the museums whose visitors were logged."""
_NAMES = {
    ONLY_CLOUD: "only cloud",
    EDGE_CACHE: "edge cache",
    FIXED: "prefetching,\n600 features",
    ADAPTIVE: "prefetching,\nadaptive",
}
_COLOURS = {ONLY_CLOUD: "#c2571a", EDGE_CACHE: "#1f6f8b", FIXED: "#e0a33a", ADAPTIVE: "#4f7a28"}
_LEAST_LABEL = 3.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement."""

    museum: MuseumSettings
    """Museum of the cloud's catalogue and the photos."""
    walks: Walks
    following: Following
    repetitions: int
    """Number of repetitions, each with other visitors."""
    feature_counts: tuple[int, ...]
    """Numbers of features that devices choose from."""
    profile: ProfileAmount

    @classmethod
    def of(cls, options: RunOptions) -> Plan:
        """The plan of a run."""
        plan = SMOKE if options.smoke else FULL
        if options.smoke and options.visits is not None:
            plan = replace(plan, museum=replace(plan.museum, objects=_REAL_EXHIBITS))
        return replace(plan, museum=replace(plan.museum, seed=options.seed))

    def profiles(self, museum: TaughtMuseum, name: str) -> Profiles:
        """Make the offline analyses of this machine for the experiment of this name."""
        folder = museum.testbed(name)
        return measure_profiles(museum.dataset, self.feature_counts, self.profile, self.museum.seed, folder)


FULL = Plan(
    MUSEUM,
    WALKS,
    following=Following(devices=10, seconds=45.0, unknown_share=0.05),
    repetitions=2,
    feature_counts=(200, 400, 600, 800),
    profile=DEVICE_AMOUNT,
)
SMOKE = Plan(
    SMOKE_MUSEUM,
    SMOKE_WALKS,
    following=Following(devices=1, seconds=3.0, unknown_share=0.05),
    repetitions=1,
    feature_counts=(600, 800),
    profile=ProfileAmount((1, 6), subsets=2, queries=6),
)


class Figure(Experiment):
    """Only cloud, edge cache, prefetching with 600 and with an adaptive number of features."""

    name: ClassVar[str] = "prefetching"
    source: ClassVar[str] = "Cachier dissertation, 6.2.3 to 6.3"
    takes: ClassVar[tuple[str, ...]] = ("visits",)
    style: ClassVar[Any] = {"axes.grid.axis": "both"}

    def __init__(self) -> None:
        self._profiles: Profiles | None = None

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per repetition, kind of visitors and configuration."""
        traces = [GENERATED] if options.visits is None else [GENERATED, REAL]
        played = [CONFIGURATIONS] if options.smoke else [(name,) for name in CONFIGURATIONS]
        return [
            {"trace": trace, "repetition": number, "configurations": names}
            for number in range(Plan.of(options).repetitions)
            for trace in traces
            for names in played
        ]

    def run(
        self, options: RunOptions, trace: str, repetition: int, configurations: Sequence[str]
    ) -> list[Row]:
        """Play a session; one row per photo."""
        plan = Plan.of(options)
        museum = TaughtMuseum(options, plan.museum)
        profiles = self._profiles = self._profiles or plan.profiles(museum, self.name)
        rng = options.rng(self.name, trace, repetition)  # the same for all configurations
        visits = _visits(trace, plan, options, rng)
        session = museum.session(museum.testbed(self.name), visits, plan.following, TABLE_6_3[NETWORK], rng)
        played = session.play({name: _tiers(name, profiles) for name in configurations})
        return [
            {"trace": trace, "tiers": name, "repetition": repetition, **photo_row(row)}
            for name, one in played.items()
            for row in one.rows
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``traces.<trace>.<configuration>``: median latencies over repetitions; shares of all photos.

        Latencies are those of the answered photos; ``failed`` counts the others.
        """
        return {"traces": numbers.nested(rows, ("trace", "tiers"), _configuration)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Prefetching relative to only cloud, and adaptive relative to fixed extraction."""
        for trace, found in summary["traces"].items():
            yield from _targets(trace, found)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per kind of visitors and configuration."""
        for trace, configuration, one in numbers.leaves(summary["traces"], 2):
            yield {
                "visitors": trace,
                "configuration": configuration,
                "p50 ms": f"{one['p50_ms']['median']:.1f}",
                "p95 ms": f"{one['p95_ms']['median']:.1f}",
                **{tier: f"{100 * one['answered_by'][tier]:.0f} %" for tier in TIERS},
                "recall": f"{one['recall']:.3f}",
                "precision": f"{one['precision']:.3f}",
                "no answer": one["failed"],
                "requests": one["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw latencies and shares of the answering tiers, one row of panels per kind of visitors."""
        found = results.metrics["traces"]
        latencies = numbers.nested(results.rows, ("trace", "tiers"), latencies_ms)
        picture = drawing.new_picture(10.5, 0.6 + 3.6 * len(found))
        panels = picture.subplots(len(found), 2, squeeze=False, sharex="col", width_ratios=[1.25, 1])
        for (times, tiers), (trace, one) in zip(panels, found.items(), strict=True):
            _draw_latencies(times, latencies[trace], one)
            times.set_title(f"Latency, {trace} visitors, {one[ONLY_CLOUD]['requests']} photos")
            _draw_tiers(tiers, one)
            tiers.set_title(f"Answered by, {trace} visitors")
        drawing.caption(
            picture,
            "One photo per second and device, the same photos for all configurations; "
            f"to the cloud {in_words(TABLE_6_3[NETWORK])}",
        )
        return picture


def _tiers(configuration: str, profiles: Profiles) -> Tiers:
    edge = None if configuration == ONLY_CLOUD else {"cache.profile": profiles.edge}
    if configuration in {ONLY_CLOUD, EDGE_CACHE}:
        return Tiers(edge, {"recognizer.prefetch.enabled": False})
    device = {
        "recognizer.prefetch.enabled": True,
        "recognizer.prefetch.profile": profiles.adaptive,
        "recognizer.prefetch.features": FIXED_FEATURES if configuration == FIXED else 0,
    }
    return Tiers(edge, device)


def _visits(trace: str, plan: Plan, options: RunOptions, rng: np.random.Generator) -> Sequence[Visit]:
    if trace == REAL and options.visits is not None:
        return read_visits_csv(options.visits)
    return plan.walks.visits(rng)


def _configuration(rows: Sequence[StoredRow]) -> dict[str, Any]:
    return {
        **median_and_tail(map(latencies_ms, numbers.grouped(rows, "repetition").values())),
        **answer_numbers(rows),
        "sent_late_p99_ms": sent_late_ms(rows),
        "sent_bytes": sum(int(row["sent_bytes"]) for row in rows),
    }


def _targets(trace: str, found: Mapping[str, Any]) -> Iterator[Target]:
    cloud = found[ONLY_CLOUD]
    for name in (FIXED, ADAPTIVE):
        one = found[name]
        share = one["answered_by"]["device"]
        ratio = one["p50_ms"]["median"] / cloud["p50_ms"]["median"]
        recall, precision = (one[key] - cloud[key] for key in ("recall", "precision"))
        yield Target.at_least(f"{trace}, {name}: answered on the device, at least 0.60", share, ON_DEVICE)
        yield Target.at_most(f"{trace}, {name}: p50 over only-cloud's, at most 0.10", ratio, TENTH)
        yield Target.at_least(f"{trace}, {name}: recall minus only-cloud's, not below 0", recall, 0)
        yield Target.at_least(f"{trace}, {name}: precision minus only-cloud's, not below 0", precision, 0)
    pairs = zip(found[ADAPTIVE]["p50_ms"]["each"], found[FIXED]["p50_ms"]["each"], strict=True)
    faster = float(np.median([adaptive / fixed for adaptive, fixed in pairs]))
    text = f"{trace}: p50 of adaptive extraction over that of 600 features, below 1"
    yield Target(text, faster, faster < 1)


def _draw_latencies(axes: Axes, latencies: Mapping[str, Sequence[float]], found: Mapping[str, Any]) -> None:
    for name in CONFIGURATIONS:
        one, colour = found[name], _COLOURS[name]
        p50, whole = one["p50_ms"]["median"], one["requests"]
        label = f"{_NAMES[name]}: p50 {p50:.1f} ms".replace("\n", " ")
        if one["failed"]:
            label += f", {one['failed']} failed"
        drawing.distribution(axes, latencies[name], whole=whole, color=colour, linewidth=1.8, label=label)
        axes.plot([p50], [0.5 * (whole - one["failed"]) / whole], "o", color=colour, markersize=5)
    axes.tick_params(labelbottom=True)
    drawing.latency_distributions(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=8)


def _draw_tiers(axes: Axes, found: Mapping[str, Any]) -> None:
    shares = {tier: [100 * found[name]["answered_by"][tier] for name in CONFIGURATIONS] for tier in TIERS}
    names = [_NAMES[name] for name in CONFIGURATIONS]
    drawing.stacked_bars(
        axes, names, shares, drawing.TIER_COLOURS, height=0.6, numbers="white", least=_LEAST_LABEL
    )
    for place, name in enumerate(CONFIGURATIONS):
        one = found[name]
        text = f"recall {one['recall']:.3f}\nprecision {one['precision']:.3f}"
        axes.text(103, place, text, va="center", fontsize=7.5)
    axes.tick_params(labelbottom=True)
    axes.set(xlim=(0, 100), xlabel="share of requests [%]")
    axes.grid(visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, fontsize=8)
