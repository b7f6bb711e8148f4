"""Recovery after a burst: three times as many photos as an edge can serve, for 20 s; real daemons.

The setup is one edge with one worker, a cloud 80 ms away, and clients of the SDK. Six visitors send a photo
per second all the time: two with devices that send every photo to the edge, four with the full system. During
the burst a crowd joins them. Its devices also send every photo to the edge, and to the cloud when the edge
refuses.

The capacity of the edge is measured first, with a few requests that are always in flight. The visitors repeat
the same photos every ten seconds, so that latencies before and after the burst are those of the same photos.
A photo without an answer counts with at least the timeout of 5 s.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.errors import NearsightError
from nearsight.common.logging import configure_logging
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.replay import Ledger, replay
from nearsight.experiments.rig.tiers import CATALOGUE, Deployment, deployed
from nearsight.experiments.studies.answers import counted_latencies_ms, median_and_tail, photo_row
from nearsight.experiments.studies.museums import SMOKE_MUSEUM, TaughtMuseum
from nearsight.experiments.studies.profiles import OURS, EdgeProfiles, ProfileAmount
from nearsight.experiments.traces.plan import PlannedPhoto

FULL, PLAIN, CROWD = "full system", "asks for every photo", "crowd"
STEADY = (PLAIN, FULL)
BEFORE, DURING, AFTER, BETWEEN = "before", "during", "after", ""
TIMES_CAPACITY = 3.0
RECOVERED = 1.2
"""Largest ratio of the latency after the burst to that before it which counts as recovered."""
NETWORK = LinkShape(rtt_ms=80.0)
_EDGE = "one"
_EDGE_SETTINGS = {
    "multi_user": "bounded",
    "server.workers": "1",
    "prefetch.objects": "0",
}
_TIMEOUT_S = 5.0
_IN_FLIGHT = 4
_ROUNDS = (BETWEEN, BEFORE, BEFORE, DURING, DURING, BETWEEN, AFTER, AFTER)
_COLOURS = {PLAIN: "#1f6f8b", FULL: "#4f7a28"}
_ASKS = RecognizerSettings(timeout_s=_TIMEOUT_S, max_pending=4096, prefetch=PrefetchSettings(enabled=False))
_FETCHES = RecognizerSettings(timeout_s=_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement."""

    museum: MuseumSettings
    """All of its exhibits are requested with equal probability."""
    round_s: float
    """Period after which visitors send the same photos again [s]; there are eight rounds."""
    capacity_s: float
    """Duration of the capacity measurement [s]."""
    crowd: int
    """Number of devices that join during the burst."""
    steady: Mapping[str, int]
    """Number of devices that send all the time, by type."""
    repetitions: int
    """Number of repetitions; each starts new daemons."""
    profile: ProfileAmount


FULL_PLAN = Plan(
    museum=MuseumSettings(objects=60, photos_per_object=2, unknown_photos=0),
    round_s=10.0,
    capacity_s=5.0,
    crowd=16,
    steady={PLAIN: 2, FULL: 4},
    repetitions=3,
    profile=ProfileAmount((1, 15, 30, 60), subsets=2, queries=8),
)
SMOKE_PLAN = Plan(
    museum=SMOKE_MUSEUM,
    round_s=1.0,
    capacity_s=0.5,
    crowd=2,
    steady={PLAIN: 1, FULL: 1},
    repetitions=1,
    profile=ProfileAmount((1, 6, 12), subsets=2, queries=3),
)


class Figure(Experiment):
    """Latency before, during and after a burst of three times the edge's capacity."""

    name: ClassVar[str] = "burst"
    source: ClassVar[str] = "beyond the Cachier dissertation's 3.5.1"

    def __init__(self) -> None:
        self._profiles = EdgeProfiles()

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per repetition."""
        return [{"repetition": number} for number in range(_plan(options).repetitions)]

    def run(self, options: RunOptions, repetition: int) -> list[Row]:
        """Send a burst; one row per photo."""
        configure_logging(level="CRITICAL")  # refusals are expected here; the rows count them
        plan = _plan(options)
        museum = TaughtMuseum(options, replace(plan.museum, seed=options.seed))
        settings = {**self._profiles.settings(museum, self.name, OURS, plan.profile), **_EDGE_SETTINGS}
        rng = options.rng(self.name, repetition)
        with deployed(
            museum.testbed(self.name),
            database=museum.database,
            edges={_EDGE: settings},
            network=NETWORK,
            seed=options.seed,
        ) as tiers:
            earlier = [(f"earlier-{turn}", name) for turn in range(5) for name in museum.photos]
            tiers.warm_up(earlier, {_EDGE: None}, with_models=True)
            tiers.link.reshape(NETWORK)
            per_s, rows = _measure(tiers, museum.photos, plan, rng)
        return [{"repetition": repetition, "capacity_per_s": round(per_s, 2), **row} for row in rows]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``who.<devices>.<phase>``: latencies and failures; ``as_before``: latency after over before.

        Latencies and ratios are medians over the repetitions, failures are sums.
        """
        of_all = numbers.nested([row for row in rows if row["phase"]], ("who", "phase"), _numbers)
        repeated = numbers.grouped(rows, "repetition").values()
        return {
            "capacity_per_s": numbers.median_and_range(
                [float(group[0]["capacity_per_s"]) for group in repeated]
            ),
            "who": of_all,
            "as_before": {
                who: numbers.median_and_range([_after_over_before(group, who) for group in repeated])
                for who in STEADY
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Ten seconds after the burst, latencies are as before and no photo fails."""
        for who in STEADY:
            ratio = summary["as_before"][who]
            text = f"{who}: p50 from 10 s after the burst over that before it, at most {RECOVERED:g}"
            note = f"{ratio['min']:g} to {ratio['max']:g} in {numbers.counted(len(ratio['each']), 'burst')}"
            yield Target.at_most(text, ratio["median"], RECOVERED, note)
            failed = summary["who"][who][AFTER]["failed"]
            yield Target.at_most(f"{who}: photos without answer after the burst", failed, 0)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per type of device and phase."""
        for who, phase, one in numbers.leaves(summary["who"], 2):
            yield {
                "devices": who,
                "phase": phase,
                "p50 ms (least to most)": numbers.median_in_words(one["p50_ms"], 0),
                "p95 ms": numbers.median_in_words(one["p95_ms"], 0),
                "no answer": one["failed"],
                "photos": one["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the latencies over time of the devices that send all the time."""
        picture = drawing.new_picture(9.0, 3.6)
        axes = picture.subplots()
        during = [float(row["time_s"]) for row in results.rows if row["phase"] == DURING]
        axes.axvspan(min(during), max(during), color="#f3e6dc")
        for who, rows in numbers.grouped(results.rows, "who").items():
            if who in STEADY:
                _draw_photos(axes, who, rows)
        axes.set(xlabel="time [s]", ylabel="latency [ms]", yscale="log", title="Latency; the burst is shaded")
        drawing.plain_logarithmic(axes.yaxis)
        axes.legend(loc="upper left")
        per_s = results.metrics["capacity_per_s"]["median"]
        drawing.caption(
            picture,
            f"The capacity of the edge is {per_s:.0f} photos per second; the burst is three times as many"
            f"; photos without an answer: at least {_TIMEOUT_S:g} s",
        )
        return picture


def _plan(options: RunOptions) -> Plan:
    return SMOKE_PLAN if options.smoke else FULL_PLAN


def _measure(
    tiers: Deployment, photos: Mapping[str, Sequence[str]], plan: Plan, rng: np.random.Generator
) -> tuple[float, list[Row]]:
    """Measure the edge's capacity [photos/s], then one row per photo of the burst and around it."""
    files = {Path(path): Path(path).read_bytes() for paths in photos.values() for path in paths}
    shown = [(name, Path(path)) for name, paths in photos.items() for path in paths]
    names = [
        (who, f"{who}-{number}".replace(" ", "-"))
        for who, count in plan.steady.items()
        for number in range(count)
    ]
    names += [(CROWD, f"{CROWD}-{number}") for number in range(plan.crowd)]
    with ExitStack() as stack, ThreadPoolExecutor(len(names)) as threads:
        devices = {
            name: stack.enter_context(_device(tiers, name, _FETCHES if who == FULL else _ASKS))
            for who, name in names
        }
        per_s = _capacity(devices[names[0][1]], list(files.values()), plan.capacity_s)
        time.sleep(plan.capacity_s / 2)  # wait until the queues are empty
        burst = [
            (
                who,
                name,
                _crowd_photos(shown, plan, per_s / plan.crowd, rng)
                if who == CROWD
                else _steady_photos(shown, plan, rng),
            )
            for who, name in names
        ]
        sent = [
            (who, threads.submit(replay, due, files, devices[name], Ledger(who, name), timeout_s=_TIMEOUT_S))
            for who, name, due in burst
        ]
        rows: list[Row] = [
            {"who": who, "phase": _ROUNDS[int(row.time_s / plan.round_s)], **photo_row(row)}
            for who, replayed in sent
            for row in replayed.result()
        ]
    return per_s, rows


def _device(tiers: Deployment, name: str, settings: RecognizerSettings) -> Recognizer:
    ends = tiers.tiers(_EDGE)
    return Recognizer(
        ends["edge.endpoint"], ends["cloud.endpoint"], CATALOGUE, device_id=name, settings=settings
    )


def _capacity(device: Recognizer, photos: Sequence[bytes], seconds: float) -> float:
    """Answered photos per second while `_IN_FLIGHT` requests are always in flight."""
    turn, until_s = itertools.cycle(photos), time.monotonic() + seconds

    def ask() -> int:
        answered = 0
        while time.monotonic() < until_s:
            try:
                device.recognize_blocking(next(turn))
                answered += 1
            except NearsightError:
                continue
        return answered

    with ThreadPoolExecutor(_IN_FLIGHT) as threads:
        return max(
            1.0, sum(one.result() for one in [threads.submit(ask) for _ in range(_IN_FLIGHT)]) / seconds
        )


def _steady_photos(
    shown: Sequence[tuple[str, Path]], plan: Plan, rng: np.random.Generator
) -> list[PlannedPhoto]:
    """Photos of a device that sends all the time: one per second, at least four per round.

    Every round has the same photos; each of two objects is shown during half of it.
    """
    per_round = max(4, round(plan.round_s))
    objects = [shown[int(index)] for index in rng.integers(len(shown), size=2)]
    phase_s = float(rng.random()) * plan.round_s / per_round
    return [
        PlannedPhoto((turn + number / per_round) * plan.round_s + phase_s, *objects[2 * number // per_round])
        for turn in range(len(_ROUNDS))
        for number in range(per_round)
    ]


def _crowd_photos(
    shown: Sequence[tuple[str, Path]], plan: Plan, share_per_s: float, rng: np.random.Generator
) -> list[PlannedPhoto]:
    """Photos of one device of the burst: random photos at uniformly random times."""
    first, rounds = _ROUNDS.index(DURING), _ROUNDS.count(DURING)
    count = round(TIMES_CAPACITY * share_per_s * rounds * plan.round_s)
    times = sorted(first * plan.round_s + rng.random(count) * rounds * plan.round_s)
    return [
        PlannedPhoto(float(at_s), *shown[int(index)])
        for at_s, index in zip(times, rng.integers(len(shown), size=count), strict=True)
    ]


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    repetitions = numbers.grouped(rows, "repetition").values()
    return {
        **median_and_tail(counted_latencies_ms(group, _TIMEOUT_S) for group in repetitions),
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
    }


def _after_over_before(rows: Sequence[StoredRow], who: str) -> float:
    phases = numbers.grouped([row for row in rows if row["who"] == who], "phase")
    after, before = (
        float(np.median(counted_latencies_ms(phases[phase], _TIMEOUT_S))) for phase in (AFTER, BEFORE)
    )
    return round(after / before, 4)


def _draw_photos(axes: Axes, who: str, rows: Sequence[StoredRow]) -> None:
    answered = [row for row in rows if row["answered_by"]]
    failed = [row for row in rows if not row["answered_by"]]
    for some, marker, label in ((answered, ".", who), (failed, "x", f"{who}: no answer")):
        if some:
            times, latencies = numbers.values(some, "time_s"), counted_latencies_ms(some, _TIMEOUT_S)
            axes.plot(times, latencies, marker, color=_COLOURS[who], markersize=4, label=label)
