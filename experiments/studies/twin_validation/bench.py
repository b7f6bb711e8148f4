"""Setup of the twin's validation: museum, profiles, traces for both sides, and a monitored machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.clock import ManualClock
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.device.recognizer_settings import PrefetchSettings
from nearsight.edge.prediction import MarkovEstimator
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.rig.conditions import Conditions, Watch
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.session import Session, Tiers
from nearsight.experiments.rig.tiers import CATALOGUE
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.prefetching import Plan
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, OperatingPoint
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.experiments.studies.profiles import Profiles, built_in_tiers, measure_edge, measure_profiles
from nearsight.experiments.traces.requests import read_requests_csv
from nearsight.experiments.twin.cost_model import MISS_FACTORS, CostModel, Hardware
from nearsight.experiments.twin.fitting import fit
from nearsight.experiments.twin.photo_book import TypicalTimes, measure_photos, pace_photos
from nearsight.experiments.twin.photos import TwinPhoto
from nearsight.experiments.twin.session import (
    ADAPTIVE,
    CONFIGURATIONS,
    LOAD_BALANCED,
    ONLY_CLOUD,
    TwinSession,
)
from nearsight.experiments.twin.visitors import visitors_from_traces

CONFIGURATIONS_COMPARED = (ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE)
FIT = "fit"
_NAME = "twin-validation"
_SMOKE_FOLLOWING = Following(devices=2, seconds=3.0, unknown_share=0.05)


POINTS: Mapping[str, OperatingPoint] = {
    FIT: OperatingPoint(visitors=8, network="Medium"),
    "baseline": BASELINE,
    "10 visitors": OperatingPoint(visitors=10),
    "slow network": OperatingPoint(network="Slow"),
}
"""Points at which testbed and twin are compared; their sections and classes are not used."""
TRACES: Mapping[str, int] = {ONLY_CLOUD: 1, LOAD_BALANCED: 4, ADAPTIVE: 4}
"""Number of traces per compared point, each with its own visitors and training of the edge (6.2.7: four runs
with different traces). One trace is enough for only the cloud: no other tier computes, and nothing is
decided."""
REPETITIONS: Mapping[str, int] = {ONLY_CLOUD: 1, LOAD_BALANCED: 2, ADAPTIVE: 2}
"""Number of repetitions of the single trace to which costs are fitted; they show the testbed's own variation.
"""
_SECONDS = 20.0
_UNKNOWN_SHARE = 0.1
TWINS = 4
"""Runs of the twin per trace, with different random times; their photos are pooled."""
_BUILT = (5, 10, 20, 40, 132, 400)
"""Sizes of the snapshots whose build time is measured [objects]."""
_BUILDS, _NO_INDEX = 3, 4
"""Number of builds per size; number of models up to which no index is built."""
_EDGE_SIZES = (1, 8, 33, 66, 132, 264, 400)
"""Numbers of objects for which lookups are timed."""
_CONCURRENCY_FACTOR = 1.3
"""Factor on a tier's time for a photo while it computes another one. Measured at an edge with two photos at
the same time, in two threads of one interpreter: 12.6 ms each instead of 9.7, medians over 20 photos."""
_LATEST_MS = 30.0
"""Largest delay of a device's photos [ms]; a larger delay means that the device got no processor time."""
_NO_MACHINE = Conditions(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Played:
    """One session of one configuration; repetitions have the same trace."""

    tiers: str
    trace: int
    repetition: int
    rows: Sequence[RequestRow]
    conditions: Conditions


def schedule(point: str) -> list[tuple[int, int, str]]:
    """Sessions at a point, as (trace, repetition, configuration), in the order in which they are played."""
    most = REPETITIONS if point == FIT else TRACES
    played = [
        (number, name) for number in range(1, 1 + max(most.values())) for name in most if number <= most[name]
    ]
    return [(1, number, name) if point == FIT else (number, 1, name) for number, name in played]


class Bench:
    """Museum, profiles and traces of a run.

    Parameters
    ----------
    options : RunOptions
        Options of the experiment.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._plan = Plan.of(options)
        self._museum = TaughtMuseum(options, self._plan.museum)
        self._folder = self._museum.testbed("twin-smoke" if options.smoke else "twin")
        self.costs_path = self._folder / "costs.json"
        self._profiles = Profiles.in_folder(self._folder)

    def traces(self, point: str) -> list[int]:
        """Numbers of the traces at a point."""
        return [1] if self._options.smoke else sorted({trace for trace, _, _ in schedule(point)})

    def sessions(self, name: str, point: OperatingPoint, trace: int = 1) -> tuple[Session, TwinSession]:
        """Create a session of the testbed and one of the twin with the same trace."""
        options, plan = self._options, self._plan
        rng = options.rng(_NAME, name, trace)
        following = _SMOKE_FOLLOWING if options.smoke else Following(point.visitors, _SECONDS, _UNKNOWN_SHARE)
        traces = f"traces/{name.replace(' ', '-')}-{trace}"
        session = self._museum.session(
            self._folder, plan.walks.visits(rng), following, point.link, rng, traces
        )
        if name == FIT:
            self._measure_profiles()
        asked = [one for trace_file in session.traces for one in read_requests_csv(trace_file.path)]
        shown = {Path(one.image_path): one.object_id for one in asked}
        seen = self._seen(shown, session.transitions)
        twin = TwinSession(
            tuple(self._models),
            visitors_from_traces(session.traces, seen),
            _with_misses(self._measured_profiles(), seen.values()) if name == FIT else self.costs(),
            point.link,
            session.transitions,
            hardware=Hardware(shared=os.cpu_count() or 1),
            seed=options.seed,
        )
        return session, twin

    def _measure_profiles(self) -> None:
        """Make the offline analyses; the edge's covers the whole catalogue, for the cloud's lookups."""
        plan, dataset = self._plan, self._museum.dataset
        measure_profiles(dataset, plan.feature_counts, plan.profile, plan.museum.seed, self._folder)
        if not self._options.smoke:
            amount = replace(plan.profile, sizes=_EDGE_SIZES)
            measure_edge(dataset, amount, self._options.seed).save(self._profiles.edge)

    @cached_property
    def _models(self) -> dict[str, ObjectModel]:
        with CatalogueStore(self._museum.database, create=False) as store:
            changes = store.changes_since(CATALOGUE, 0)
        return {model.object_id: model for model in changes.written}

    def _seen(
        self, shown: Mapping[Path, str], transitions: Sequence[tuple[str, str]]
    ) -> Mapping[Path, TwinPhoto]:
        models = self._models
        cached = tuple(sorted({object_id for _, object_id in transitions}))
        shows = {one.path: one.object_id for one in self._museum.dataset.queries if one.object_id in cached}
        device = DeviceProfile.load(self._profiles.adaptive)
        usual = TypicalTimes(
            device,
            CacheProfile.load(self._profiles.edge),
            cached,
            _held_by_devices(models, transitions, max(one.largest_k for one in device.profiles)),
            pace_photos(shows),
        )
        return measure_photos(shown, models.values(), self._plan.feature_counts, RecognitionSettings(), usual)

    def _measured_profiles(self) -> CostModel:
        models = list(self._models.values())
        features = np.median([sum(map(len, model.views)) for model in models])
        return CostModel(
            edge=CacheProfile.load(self._profiles.edge),
            device=DeviceProfile.load(self._profiles.adaptive),
            model_features=round(float(features)),
            together=_CONCURRENCY_FACTOR,
            build_ms=((_NO_INDEX, 0.0), *_build_ms(models)),
        )

    def tiers(self) -> dict[str, Tiers]:
        """The configurations on the testbed, with the same settings as those of the twin."""
        return {name: built_in_tiers(name, self._profiles) for name in CONFIGURATIONS_COMPARED}

    def play_all(self, session: Session) -> list[Played]:
        """Play all configurations at the same time, for a smoke run without verdicts."""
        played = session.play(self.tiers())
        return [Played(name, 1, 1, one.rows, _NO_MACHINE) for name, one in played.items()]

    def play_each_alone(self, point: str, sessions: Mapping[int, Session]) -> list[Played]:
        """Play every configuration alone on the machine: each trace once, but that of the fit several times.

        Parameters
        ----------
        point : str
            Name of the operating point.
        sessions : mapping of int to Session
            Sessions by number of the trace.
        """
        tiers, watch, played = self.tiers(), Watch(), []
        for trace, repetition, name in schedule(point):
            rows, conditions = watch.undisturbed(
                f"{point}, trace {trace}, {name}",
                lambda trace=trace, name=name: sessions[trace].play({name: tiers[name]})[name].rows,  # type: ignore[misc]
                _was_late,
            )
            played.append(Played(name, trace, repetition, rows, conditions))
        return played

    def costs(self) -> CostModel:
        """Load the fitted costs."""
        return CostModel.load(self.costs_path)

    def fit(self, twin: TwinSession, played: Sequence[Played]) -> None:
        """Fit the costs to this point, and store them for the other points."""
        measured = {
            name: [one.rows for one in played if one.tiers == name] for name in CONFIGURATIONS_COMPARED
        }
        photos = {
            (visitor.name, number): planned.path.name
            for visitor in twin.visitors
            for number, (planned, _) in enumerate(visitor.plan)
        }
        counts = {name: sum(map(len, sessions)) for name, sessions in measured.items()}
        origin = "testbed, " + ", ".join(f"{count} photos {name}" for name, count in counts.items())
        pace_ms = float(np.mean([one.conditions.pace_ms for one in played]))
        costs = twin.costs.model_copy(update={"pace_ms": pace_ms})

        def tried_with(tried: CostModel) -> Mapping[str, Sequence[RequestRow]]:
            simulated = simulate(replace(twin, costs=tried), played, 1)
            return {
                name: [row for one in simulated if one.tiers == name for row in one.rows]
                for name in CONFIGURATIONS_COMPARED
            }

        fit(costs, measured, tried_with, photos=photos, origin=origin).save(self.costs_path)


def _build_ms(models: Sequence[ObjectModel]) -> tuple[tuple[int, float], ...]:
    """Measure the build time by number of models [ms]; CPU time, as in profiles."""
    found = []
    for size in sorted({min(size, len(models)) for size in _BUILT}):
        times = []
        for _ in range(_BUILDS):
            started_s = time.thread_time()
            ObjectRecognizer.build(models[:size])
            times.append((time.thread_time() - started_s) * 1e3)
        found.append((size, float(np.median(times))))
    return tuple(found)


def _held_by_devices(
    models: Mapping[str, ObjectModel], transitions: Sequence[tuple[str, str]], largest_k: int
) -> dict[str, tuple[str, ...]]:
    """Objects that a device holds while its visitor looks at one: this one, and those its edge predicts.

    With few features a device holds as many objects as its profile covers (``largest_k``), limited by its
    settings.
    """
    settings = EdgeSettings().cache.markov
    markov = MarkovEstimator(models, settings, ManualClock())
    for visitor, object_id in transitions:
        markov.observe(visitor, object_id)
    most = min(largest_k, PrefetchSettings().k_max)
    held = {}
    for object_id in models:
        following = markov.observe("", object_id)
        others = [] if following is None else [one for one in following.object_ids if one != object_id]
        held[object_id] = (object_id, *others[: most - 1])
    return held


def _with_misses(costs: CostModel, photos: Iterable[TwinPhoto]) -> CostModel:
    """Set the miss factor, used for photos without a measurement, to the measured median."""
    efforts = [one.tier_effort.missed for one in photos if one.tier_effort.missed is not None]
    if not efforts:
        return costs
    return costs.model_copy(update={"miss_factor": float(np.clip(np.median(efforts), *MISS_FACTORS))})


def _was_late(rows: Sequence[RequestRow]) -> str:
    """Describe the delay of photos if it was too large; else empty."""
    late_ms = float(np.percentile([row.late_ms for row in rows], 99))
    return f"photos were sent {late_ms:.0f} ms late" if late_ms > _LATEST_MS else ""


def simulate(twin: TwinSession, played: Sequence[Played], times: int = TWINS) -> list[Played]:
    """Play one trace in the twin, ``times`` times with other random times, at the measured paces."""
    (trace,) = {one.trace for one in played}
    found = []
    for number, (name, tiers) in product(range(1, times + 1), CONFIGURATIONS.items()):
        paces = [_pace(twin.costs, one.conditions) for one in played if one.tiers == name]
        if paces:
            hardware = replace(twin.hardware, pace=float(np.mean(paces)))
            rows = replace(twin, hardware=hardware, seed=twin.seed + number - 1).play(name, tiers).rows
            found.append(Played(name, trace, number, rows, _NO_MACHINE))
    return found


def _pace(costs: CostModel, conditions: Conditions) -> float:
    """Pace of the machine in a session relative to that of the costs; 1 if unknown."""
    return conditions.pace_ms / costs.pace_ms if conditions.pace_ms and costs.pace_ms else 1.0
