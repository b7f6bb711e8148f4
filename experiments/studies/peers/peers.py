"""Cooperating devices: data survives failures, and the edge sends fewer models (dissertation, chapter 5).

The experiment has two parts. *Nothing lost* (`endurance`): 20 devices hold every key on two of them and are
killed one after another, with time for the hand-over in between. *Cooperative prefetching*: the devices of
ten visitors use the same edge, alone or cooperating. Cloud, edge and devices are real processes, as in the
experiment ``prefetching``. The devices prefetch with an adaptive number of features. The two configurations
differ only in whether the devices cooperate. The bytes of models that the edge sent are those that the edge
itself counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.session import Played, Tiers
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.answers import TIERS, answer_numbers
from nearsight.experiments.studies.cachier.prefetching import NETWORK, Plan
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.experiments.studies.peers.endurance import (
    GONE,
    HANDED_OVER,
    MISCOUNTED,
    UNREADABLE,
    Endurance,
    EndurancePlan,
    endurance_numbers,
)
from nearsight.experiments.studies.profiles import Profiles, sharing_settings

ENDURANCE, PREFETCHING = "nothing lost", "prefetching"
ALONE, SHARING = "alone", "sharing"
PHOTO, EDGE_BYTES = "photo", "edge bytes"
MOST_EDGE_BYTES = 0.4
NOT_WORSE = 1.05
"""Tolerance for latencies: two runs of the same configuration differ by a few per cent."""

_COLOURS = {ALONE: "#c2571a", SHARING: "#1f6f8b"}
_DETECTED, _HANDED = "#e0a33a", "#1f6f8b"

FULL = EndurancePlan(nodes=20, survivors=2, keys=10_000, merges=5, period_s=1.0, departure_s=3.0)
SMOKE = EndurancePlan(nodes=4, survivors=2, keys=200, merges=3, period_s=0.3, departure_s=0.6)
_CROWDS = 6
"""One crowd sends only about 400 photos, of which 20 are slower than its p95."""
_SMOKE_FOLLOWING = Following(devices=2, seconds=4.0, unknown_share=0.05)
_COLUMNS: Row = {
    "part": "",
    "devices": "",
    "repetition": 0,
    "kind": "",
    "place": "",
    "death": 0,
    "left": 0,
    "expected": "",
    "answered": "",
    "answered_by": "",
    "value": 0.0,
}


class Figure(Experiment):
    """Cooperating devices: nothing is lost when they fail, and less is downloaded from the edge."""

    name: ClassVar[str] = "peers"
    source: ClassVar[str] = "Cachier dissertation, 5.1.1 and 5.3"

    def __init__(self) -> None:
        self._profiles: Profiles | None = None

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """The group with failures; then one session per crowd and configuration."""
        sessions: list[tuple[int, tuple[str, ...]]] = [(0, (ALONE, SHARING))]
        if not options.smoke:
            sessions = [(number, (one,)) for number in range(_CROWDS) for one in _order(number)]
        prefetching = [
            {"part": PREFETCHING, "repetition": number, "configurations": names} for number, names in sessions
        ]
        return [{"part": ENDURANCE}, *prefetching]

    def run(
        self, options: RunOptions, part: str, repetition: int = 0, configurations: Sequence[str] = ()
    ) -> list[Row]:
        """Measure one of the parts."""
        if part == ENDURANCE:
            folder = options.museums.resolve().parent / "testbed" / self.name / "nothing-lost"
            plan = SMOKE if options.smoke else FULL
            rows = Endurance(folder, plan, options.rng(self.name, part), options.seed).run()
        else:
            rows = self._prefetch(repetition, options, configurations)
        return [{**_COLUMNS, "part": part, **row} for row in rows]

    def _prefetch(self, number: int, options: RunOptions, configurations: Sequence[str]) -> list[Row]:
        """Play one crowd of visitors; several configurations are played at the same time."""
        plan = Plan.of(options)
        if options.smoke:
            plan = replace(plan, following=_SMOKE_FOLLOWING)
        museum = TaughtMuseum(options, plan.museum)
        profiles = self._profiles = self._profiles or plan.profiles(museum, self.name)
        rng = options.rng(self.name, "visitors", number)  # the same for both configurations
        visits = plan.walks.visits(rng)
        folder = museum.testbed(self.name)
        session = museum.session(folder, visits, plan.following, TABLE_6_3[NETWORK], rng)
        played = session.play({name: _tiers(name, profiles) for name in configurations})
        return [
            {"devices": name, "repetition": number, **row}
            for name, one in played.items()
            for row in _rows(one)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``nothing_lost``, ``prefetching.<configuration>``, and ``ratios`` of each repetition by itself.

        Latencies are those of the answered photos; ``failed`` counts the others.
        """
        parts = numbers.grouped(rows, "part")
        return {
            "nothing_lost": endurance_numbers(parts[ENDURANCE]),
            "prefetching": numbers.nested(parts[PREFETCHING], ("devices",), _sharing_numbers),
            "ratios": _latency_ratios(parts[PREFETCHING]),
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """No data is lost; cooperation reduces the edge's traffic without slower or more wrong answers."""
        lost = summary["nothing_lost"]
        alone, sharing = (summary["prefetching"][name] for name in (ALONE, SHARING))
        bytes_ratio = sharing["edge_model_bytes"] / max(1, alone["edge_model_bytes"])
        latencies = [
            Target.at_most(
                f"sharing: {name} relative to alone, at most {NOT_WORSE}",
                sharing[f"{name}_ms"] / alone[f"{name}_ms"],
                NOT_WORSE,
                f"over the crowds {_spread(summary['ratios'][name])}",
                digits=4,
            )
            for name in ("p50", "p95")
        ]
        recall = sharing["recall"] - alone["recall"]
        return (
            Target.at_most("unreadable keys, after any failure", lost["unreadable"], 0),
            Target.at_most("largest error of a counter after any failure", lost["miscounted"], 0),
            Target.at_most(
                f"sharing: bytes of models from the edge, relative to alone, at most {MOST_EDGE_BYTES}",
                bytes_ratio,
                MOST_EDGE_BYTES,
                digits=4,
            ),
            *latencies,
            Target.at_most(
                f"sharing: wrong answers, at most the {alone['wrong']} of alone",
                sharing["wrong"],
                alone["wrong"],
            ),
            Target.at_least("sharing: recall relative to alone, at least -0.01", recall, -0.01, digits=4),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """The two configurations of prefetching."""
        for name, one in summary["prefetching"].items():
            yield {
                "devices": name,
                "from edge MB": f"{one['edge_model_bytes'] / 1e6:.2f}",
                "listings MB": f"{one['list_bytes'] / 1e6:.2f}",
                "from peers MB": f"{one['peer_model_bytes'] / 1e6:.2f}",
                "wasted MB": f"{one['wasted_model_bytes'] / 1e6:.2f}",
                "p50 ms": f"{one['p50_ms']:.1f}",
                "p95 ms": f"{one['p95_ms']:.1f}",
                **{tier: f"{100 * one['answered_by'][tier]:.0f} %" for tier in TIERS},
                "recall": f"{one['recall']:.3f}",
                "wrong": one["wrong"],
                "no answer": one["failed"],
                "requests": one["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw failures, traffic and latency."""
        parts, found = numbers.grouped(results.rows, "part"), results.metrics
        picture = drawing.new_picture(12.0, 3.9)
        deaths, traffic, latency = picture.subplots(1, 3, width_ratios=[1.5, 0.8, 1.2])
        _draw_deaths(deaths, parts[ENDURANCE], found["nothing_lost"])
        _draw_traffic(traffic, found["prefetching"])
        _draw_latency(latency, parts[PREFETCHING], found["prefetching"])
        return picture


def _tiers(configuration: str, profiles: Profiles) -> Tiers:
    edge = {"cache.profile": profiles.edge, "metrics_listen": "127.0.0.1:0"}
    device = {
        "recognizer.prefetch.enabled": True,
        "recognizer.prefetch.profile": profiles.adaptive,
    }
    if configuration == SHARING:
        device |= sharing_settings()
    return Tiers(edge, device)


def _rows(played: Played) -> list[Row]:
    """Rows of the photos, and of the counters."""
    counted = {EDGE_BYTES: played.edge_sent.get("Catalogue.GetObjectModels", 0), **played.models}
    photos: list[Row] = [
        {
            "kind": PHOTO,
            "expected": row.expected,
            "answered": row.answered,
            "answered_by": row.answered_by,
            "value": row.latency_ms,
        }
        for row in played.rows
    ]
    sums: list[Row] = [{"kind": kind, "value": value} for kind, value in counted.items()]
    return [*photos, *sums]


def _sharing_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Summarise the downloads and the answers of one configuration's devices."""
    photos = [row for row in rows if row["kind"] == PHOTO]
    latencies = _answered_ms(photos)

    def total(kind: str) -> int:
        return int(sum(numbers.values((row for row in rows if row["kind"] == kind), "value")))

    return {
        "edge_model_bytes": total(EDGE_BYTES),
        "list_bytes": total("list_bytes"),
        "peer_model_bytes": total("peer_bytes"),
        "wasted_model_bytes": total("wasted_bytes"),
        "rejected_models": total("rejected_models"),
        "fetched_models": total("fetched_models"),
        "models_from_peers": total("peer_models"),
        "waited_in_vain": total("waited_in_vain"),
        **{f"p{rank}_ms": round(float(np.percentile(latencies, rank)), 3) for rank in (50, 95)},
        **answer_numbers(photos),
    }


def _answered_ms(rows: Sequence[StoredRow]) -> list[float]:
    """Latencies of the answered photos [ms]."""
    return numbers.values((row for row in rows if row["kind"] == PHOTO and row["answered_by"]), "value")


def _latency_ratios(rows: Sequence[StoredRow]) -> dict[str, list[float]]:
    """Latency with cooperation over latency without, for each crowd."""
    crowds = numbers.nested(rows, ("repetition", "devices"), _answered_ms).values()
    pairs = [(one[SHARING], one[ALONE]) for one in crowds if one.get(SHARING) and one.get(ALONE)]
    return {
        f"p{rank}": [
            round(float(np.percentile(sharing, rank) / np.percentile(alone, rank)), 4)
            for sharing, alone in pairs
        ]
        for rank in (50, 95)
    }


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "not known"
    return f"{min(ratios):.2f} to {max(ratios):.2f}, median {np.median(ratios):.2f}"


def _order(number: int) -> tuple[str, ...]:
    return (ALONE, SHARING) if number % 2 == 0 else (SHARING, ALONE)


def _draw_deaths(axes: Axes, rows: Sequence[StoredRow], found: Mapping[str, Any]) -> None:
    def by_death(kind: str) -> dict[int, float]:
        return {int(row["death"]): float(row["value"]) for row in rows if row["kind"] == kind}

    detected, handed = by_death(GONE), by_death(HANDED_OVER)
    lost = {death: int(count) for death, count in by_death(UNREADABLE).items()}
    miscounted = by_death(MISCOUNTED)
    x = np.array(sorted(detected))
    first = np.array([detected[death] for death in x])
    axes.bar(x, first, color=_DETECTED, label="until detected by all")
    then = [handed[death] for death in x]
    axes.bar(x, then, bottom=first, color=_HANDED, label="until every key is on two devices again")
    for death, height in zip(x, first + np.array(then), strict=True):
        if lost[death] or miscounted[death]:
            axes.text(
                death, height, f"{lost[death]} lost", color="#b00020", ha="center", va="bottom", fontsize=7
            )
    axes.set_title(f"{found['deaths']} of {found['nodes']} devices fail one after another", fontsize=9)
    verdict = f"unreadable keys: {found['unreadable']}, largest error of a counter: {found['miscounted']}"
    axes.set(xlabel=f"failure\n{verdict}", ylabel="time after the failure [s]")
    drawing.whole_numbers(axes.xaxis)
    axes.margins(y=0.3)
    axes.legend(loc="upper left", fontsize=8)


def _draw_traffic(axes: Axes, found: Mapping[str, Any]) -> None:
    names = [ALONE, SHARING]
    megabytes = [found[name]["edge_model_bytes"] / 1e6 for name in names]
    share = megabytes[1] / megabytes[0] if megabytes[0] else 0.0
    nearby = [found[name]["peer_model_bytes"] / 1e6 for name in names]
    axes.bar(names, megabytes, color=[_COLOURS[name] for name in names], width=0.6)
    axes.bar(names, nearby, bottom=megabytes, color="#d0d0d0", width=0.6)
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
    axes.text(0, 0.5 * megabytes[0], f"{megabytes[0]:.2f}", color="white", **middle)
    axes.text(1, 0.5 * megabytes[1], f"{megabytes[1]:.2f}\n{100 * share:.0f} %", color="white", **middle)
    axes.text(1, megabytes[1] + 0.5 * nearby[1], f"from peers\n{nearby[1]:.2f}", **middle)
    axes.set(ylabel="models [MB]")
    axes.set_title("Source of models (edge: in colour)", fontsize=9)


def _draw_latency(axes: Axes, rows: Sequence[StoredRow], found: Mapping[str, Any]) -> None:
    latencies = numbers.nested(rows, ("devices",), _answered_ms)
    for name in (ALONE, SHARING):
        one = found[name]
        label = f"{name}: p50 {one['p50_ms']:.1f}, p95 {one['p95_ms']:.0f} ms, recall {one['recall']:.3f}"
        if one["failed"]:
            label += f", {one['failed']} failed"
        drawing.distribution(axes, latencies[name], whole=one["requests"], color=_COLOURS[name], label=label)
    drawing.latency_distributions(axes)
    axes.set_title("Latency of recognition", fontsize=9)
    axes.legend(loc="lower right", fontsize=8)
