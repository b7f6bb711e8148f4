"""The Optimizer of figure 4.5: after each answer it decides what to hold ready, fetches that and swaps it in.

Requests call `note`, from any thread; it waits for nothing. What it notes leads to jobs in one background
thread::

    an object was recognised ──> follow: take up its snapshot (LRU) and what was predicted for it
            │                        │
            │ by the device          ▼
            └──> ask the edge ──> decide (k, features) ──> ModelFetcher ──> models arrive ──> assemble, swap
                                        a new revision ──> sync: list the objects, drop what is outdated

Until all models of a decision are here, or failed, what answers goes on answering (section 4.7.1). While the
edge is away, remembered predictions serve, or those of the devices nearby, and all that is held answers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.catalogue.catalogue_sync import CatalogueSync
from nearsight.common.catalogue.model_fetcher import ModelFetcher, ModelSource, ReadModelSource
from nearsight.common.clock import Clock
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.operation.status import format_bytes
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.prefetching.decision import (
    PrefetchDecision,
    PrefetchFacts,
    PrefetchOptimizer,
    why_empty,
)
from nearsight.device.prefetching.held_models import HeldModels, PrefetchAccount
from nearsight.device.prefetching.predictions import Forecasts, Prediction, PredictionSource
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import Build, LocalCache, Snapshots
from nearsight.device.prefetching.tier_clients import ObjectLister
from nearsight.device.recognizer_settings import PrefetchSettings

_MOST_NOTES = 64
_MOST_ABSENT = 1000
_TOLERANCE = 0.15
"""A decision stands until what it rests on has changed by more than this share."""
_GATHER_S = 0.05
"""Models that arrive within this time of each other are built into one snapshot."""


class Neighbourhood(Protocol):
    """Told what devices nearby may learn of this one; called in the background thread, must not wait."""

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """An object was recognised, after another one ("": none); ``features``: of the photo, if known."""

    def listed(self, listing: Listing) -> None:
        """The catalogue is this."""

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """The device answers with these models."""


@dataclass(frozen=True, slots=True)
class PrefetchSources:
    """Where models, listings and predictions come from."""

    models: ModelSource | ReadModelSource
    """Gives models."""
    lister: ObjectLister
    """Lists the catalogue."""
    edge: PredictionSource | None
    """The edge, which predicts; None without an edge."""
    neighbours: PredictionSource | None = None
    """The devices nearby, which predict where no edge does."""
    neighbourhood: Neighbourhood | None = None
    """Told what devices nearby may learn."""


@dataclass(frozen=True, slots=True)
class PrefetchState:
    """What the device's cache is and did, for metrics."""

    k: int
    query_features: int
    """In the snapshot that answers, and extracted for it."""
    held_models: int
    held_bytes: int
    """Kept in memory."""
    lookups: int
    hits: int
    """Of all photos."""
    account: PrefetchAccount
    """What was fetched, and wasted."""
    expected_ms: float
    miss_ms: float
    """E[L] of the last decision, 0 before the first; L_miss."""


@dataclass(frozen=True, slots=True)
class _Note:
    """An object was recognised, by the device itself or by a tier."""

    found: RecognizedObject
    features: Features | None
    prediction: Prediction | None
    seen_by_edge: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Basis:
    """What a decision rested on."""

    current: str
    following: NextObjects
    numbers: tuple[float, ...]

    def still_holds(self, now: _Basis) -> bool:
        before, after = self.following, now.following
        if self.current != now.current or before.object_ids != after.object_ids:
            return False
        close = np.allclose(before.probabilities, after.probabilities, rtol=_TOLERANCE, atol=0.01)
        return bool(close and np.allclose(self.numbers, now.numbers, rtol=_TOLERANCE, atol=0.02))


class PrefetchController:
    """Fills a `LocalCache` with what the device is likely to see next.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    cache : LocalCache
        What requests are answered from.
    profiler : DeviceProfiler
        The terms of equation 4.1.
    held : HeldModels
        Where models are kept; only the prefetcher changes it.
    sources : PrefetchSources
        Whom to ask.
    settings : PrefetchSettings
        Limits.
    clock : Clock
        Must run in real time.
    background, build
        Who works, and how models become a recognizer; the simulation brings its own.
    """

    def __init__(  # noqa: PLR0913, PLR0917  one place wires it
        self,
        catalogue: str,
        cache: LocalCache,
        profiler: DeviceProfiler,
        held: HeldModels,
        sources: PrefetchSources,
        settings: PrefetchSettings,
        clock: Clock,
        background: BackgroundWorker | None = None,
        build: Build = ObjectRecognizer.build,
    ) -> None:
        self._catalogue = catalogue
        self._cache = cache
        self._profiler = profiler
        self._held = held
        self._neighbourhood = sources.neighbourhood
        self._settings = settings
        self._clock = clock
        self._log = get_logger("device.prefetcher").bind(catalogue=catalogue)
        self._background = background or BackgroundWorker(clock, "nearsight-prefetch")
        self._notes: deque[_Note] = deque(maxlen=_MOST_NOTES)
        self._closing = threading.Event()
        # From here on only the background thread writes.
        self._fetcher = ModelFetcher(
            catalogue,
            sources.models,
            self._background,
            settings,
            clock,
            self._models_arrived,
            lambda _failed: self._assemble(),
            overtake=sources.neighbourhood is None,  # devices nearby may be worth a wait
        )
        self._snapshots = Snapshots(cache, settings.snapshots, settings.recognition, clock, build)
        lister, timeout_s = sources.lister, settings.timeout_s
        self._sync = CatalogueSync(
            catalogue, partial(lister.list_objects, timeout_s), self._background, clock, self._listed
        )
        self._forecasts = Forecasts(
            sources.edge,
            self._background,
            settings,
            clock,
            self._predicted,
            sources.neighbours,
            on_unknown=self._sync.sync,
        )
        self._has_edge = sources.edge is not None
        self._edge_away = not self._has_edge
        self.listing: Listing | None = None
        """The catalogue as it was listed last; None until it changes, or `list_objects` was called."""
        self._absent: set[str] = set()
        self._current = ""
        self._basis: _Basis | None = None
        self._decision: PrefetchDecision | None = None
        self._decided_s = 0.0
        self._k_max = settings.k_max
        self._background.start()
        if sources.neighbourhood is not None:
            self.list_objects()
        if not self._has_edge:
            self._sync.poll(partial(lister.get_revision, timeout_s), settings.watch_s)

    # On the request path

    def note(
        self,
        found: RecognizedObject,
        features: Features | None,
        prediction: Prediction | None = None,
        *,
        seen_by_edge: bool = False,
    ) -> None:
        """An object was recognised, by the device or by a tier.

        Parameters
        ----------
        found : RecognizedObject
            The answer.
        features : Features or None
            Of the photo, if they are known.
        prediction : Prediction, optional
            What the edge said could follow.
        seen_by_edge : bool
            Whether the edge answered; it need not be told.
        """
        self._notes.append(_Note(found, features, prediction, seen_by_edge))
        self._background.submit(self._take_notes, name="notes")

    def list_objects(self) -> None:
        """List the catalogue now, not only once it has changed."""
        self._sync.soon()

    # What others see

    @property
    def state(self) -> PrefetchState:
        """For metrics."""
        snapshot = self._cache.snapshot
        lookups, hits = self._cache.counts
        decision = self._decision
        return PrefetchState(
            len(snapshot),
            snapshot.query_features,
            len(self._held),
            self._held.size_bytes,
            lookups,
            hits,
            self._held.account,
            decision.terms.expected_ms if decision else 0.0,
            self._profiler.miss_ms,
        )

    def explain(self) -> Explanation | None:
        """The last decision, with what speaks for it; None before the first."""
        decision = self._decision
        if decision is None:
            return None
        age_s = max(0.0, self._clock.monotonic() - self._decided_s)
        return Explanation(
            self._catalogue,
            age_s,
            decision.terms,
            tuple(terms for _, terms in sorted(decision.alternatives.items())),
            self._k_max,
            decision.why,
            decision.object_ids,
            tuple(self._facts()),
        )

    def why_empty(self) -> str:
        """Why nothing is held ready, in one sentence for a person; empty if something is."""
        if self._cache.snapshot.recognizer.models:
            return ""
        return why_empty(self._decision, recognised=bool(self._current), edge_away=self._edge_away)

    def _facts(self) -> list[tuple[str, str]]:
        state = self.state
        account = state.account
        failures = self._forecasts.failures
        edge = "answers" if not failures else f"away, {failures} failures in a row"
        if not self._has_edge:
            edge = "no edge"
        empty = self.why_empty()
        return [
            *([("why empty", empty)] if empty else []),
            ("current object", self._current),
            ("in use", f"{state.k} objects, {state.query_features} features"),
            ("held", f"{state.held_models} models, {format_bytes(state.held_bytes)}"),
            ("lookups", f"{state.hits} hits of {state.lookups}"),
            ("fetched", f"{account.fetched_models} models, {format_bytes(account.fetched_bytes)}"),
            ("wasted", f"{account.wasted_models} models, {format_bytes(account.wasted_bytes)}"),
            ("miss latency", self._profiler.miss_why),
            ("next photo of the same object", f"{self._profiler.stays:.2f}"),
            ("lookup", f"x{self._profiler.correction:.2f} of the profile ({self._profiler.profile.origin})"),
            ("predictions of the edge", edge),
        ]

    def close(self) -> None:
        """Stop; requests may still be answered from the last snapshot."""
        self._closing.set()
        self._background.stop(timeout_s=2.0)

    # In the background thread: following what the device sees

    def _take_notes(self) -> None:
        while self._notes:
            self._follow(self._notes.popleft())

    def _follow(self, note: _Note) -> None:
        name = note.found.object_id
        if self._neighbourhood is not None:
            self._neighbourhood.followed(self._current, note.found, note.features)
        if self._current:
            self._profiler.observe_step(same_object=name == self._current)
        if not self._cache.snapshot.recognizer.models:
            self._profiler.relax()
        held = self._held.used(name)
        if name != self._current:
            self._current = name
            self._snapshots.reuse(name)
        if held is not None and held.version < note.found.version:
            self._sync.sync()
        if note.prediction is not None:
            self._forecasts.remember(name, note.prediction)
            self._predicted(note.prediction)
        elif not note.seen_by_edge:
            self._forecasts.report(name)
        if note.seen_by_edge or self._forecasts.get(name) is not None:
            self._decide()
        # Otherwise what served until now goes on serving until the edge says more.

    def _predicted(self, prediction: Prediction | None) -> None:
        """Something was predicted, or the edge did not answer."""
        if prediction is not None and prediction.now is not None:
            self._profiler.observe_edge(prediction.now)
        away, was_away = self._forecasts.edge_away, self._edge_away
        if away != was_away:
            self._edge_away = away
            self._fetcher.want(())  # what failed while it was away need not wait any longer
            self._basis = None
        if self._forecasts.get(self._current) is not None or not self._has_edge:
            self._decide()
        elif away != was_away:
            self._assemble()
        if prediction is not None:
            self._sync.note_revision(prediction.revision)

    # Deciding

    def _decide(self) -> None:
        """Minimise equation 4.1, if what it rests on has changed."""
        if not self._current:
            return
        predicted = self._forecasts.get(self._current)
        # An object without a model would only take the place of another one.
        following = (predicted.following if predicted else NextObjects.nothing()).without(self._absent)
        miss_ms, correction, stays = self._profiler.miss_ms, self._profiler.correction, self._profiler.stays
        basis = _Basis(self._current, following, (miss_ms, correction, stays))
        if self._basis is not None and self._basis.still_holds(basis):
            return
        self._basis = basis
        self._k_max = self._most_objects()
        facts = PrefetchFacts(following, miss_ms, self._current, stays)
        self._decision = PrefetchOptimizer(self._profiler.curves(self._k_max)).decide(facts, self._k_max)
        self._decided_s = self._clock.monotonic()
        self._log.debug("decision", why=self._decision.why)
        self._fetcher.want([name for name in self._decision.object_ids if name not in self._held])
        self._assemble()

    def _most_objects(self) -> int:
        mean_bytes = self._held.mean_bytes
        fitting = int(self._settings.memory_bytes // mean_bytes) if mean_bytes else self._settings.k_max
        return min(self._settings.k_max, fitting)

    # Models and snapshots

    def _models_arrived(self, fetched: FetchedModels) -> list[str]:
        wire_bytes = fetched.size_bytes // max(1, len(fetched.models))
        gone: set[str] = set()
        for model in fetched.models:
            gone |= self._held.put(model, wire_bytes)
        self._snapshots.forget(gone)
        if fetched.missing and len(self._absent) < _MOST_ABSENT:
            self._absent.update(fetched.missing)
            self._background.submit(self._decide, name="decide")
        self._sync.note_revision(fetched.revision)
        after_s = _GATHER_S if self._fetcher.in_flight > 1 else 0.0
        self._background.submit(self._assemble, name="assemble", after_s=after_s)
        return [model.object_id for model in fetched.models if model.object_id in gone]

    def _assemble(self) -> None:
        """Answer with what was decided; until all of it is here, also with what answers now."""
        decision = self._decision
        if decision is None or self._closing.is_set():
            return
        names = self._names(decision)
        models = {name: model for name in names if (model := self._held.get(name)) is not None}
        if any(self._fetcher.awaits(name) for name in names):
            answering = self._cache.snapshot.recognizer.models
            if models.items() <= answering.items():
                return
            stay = [name for name in answering if name not in models][: max(0, self._k_max - len(models))]
            models.update((name, answering[name]) for name in stay)
        wait_s = self._snapshots.serve(self._current, [*models.values()], decision.query_features)
        if wait_s > 0:
            self._background.submit(self._assemble, name="assemble", after_s=wait_s)
        elif self._neighbourhood is not None:
            self._neighbourhood.serving([*models.values()])

    def _names(self, decision: PrefetchDecision) -> tuple[str, ...]:
        """What should answer; while the edge is away, everything that is here."""
        if not self._edge_away or not decision.k:
            return decision.object_ids
        others = [name for name in self._held.versions() if name not in decision.object_ids]
        return (*decision.object_ids, *reversed(others))[: self._k_max]

    # Versions

    def _listed(self, listing: Listing) -> None:
        """Drop what left the catalogue or was replaced."""
        self.listing = listing
        if self._neighbourhood is not None:
            self._neighbourhood.listed(listing)
        self._absent.clear()
        versions = listing.versions
        outdated = {name for name, version in self._held.versions().items() if versions.get(name) != version}
        self._held.remove(outdated)
        self._snapshots.remove(outdated)
        self._basis = None
        self._decide()
