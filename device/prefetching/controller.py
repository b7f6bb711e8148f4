"""The Optimizer of figure 4.5: after each answer it decides which models to cache, fetches and swaps them in.

Request threads call `note`, which does not block. After the outcome of the request, one background thread
processes the notes::

    an object was recognised ──> follow: reuse its snapshot (LRU) and the last prediction for it
            │                        │
            │ by the device          ▼
            └──> ask the edge ──> decide (k, features) ──> ModelFetcher ──> models arrive ──> assemble, swap
                                        a new revision ──> sync: list the objects, drop outdated models

Until all models of a decision have arrived or failed, the current models continue to answer (section 4.7.1).
While the edge does not answer, stored predictions or those of devices nearby are used, and all models in
memory answer, up to the limit ``k_max``. A cache that was decided to be empty stays empty if another tier
answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

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
from nearsight.device.prefetching.snapshots import Snapshots
from nearsight.device.prefetching.tier_clients import ObjectLister
from nearsight.device.recognizer_settings import PrefetchSettings

_MOST_NOTES = 64
_MOST_ABSENT = 1000
_GATHER_S = 0.05
"""Time in which arriving models are collected before a snapshot is built [s]."""


class PrefetchObserver(Protocol):
    """Receives events for cooperation with devices nearby, in the background thread; must not block."""

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """``found`` was recognised after ``previous`` ("": none) in a photo with ``features``, if known."""

    def listed(self, listing: Listing) -> None:
        """A tier sent this listing of the catalogue."""

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """The device now answers with these models."""


@dataclass(frozen=True, slots=True)
class PrefetchSources:
    """Sources of models, listings and predictions."""

    models: ModelSource | ReadModelSource
    """The source of models."""
    lister: ObjectLister
    """The source of listings."""
    edge: PredictionSource | None
    """The source of predictions at the edge; None without an edge."""
    neighbours: PredictionSource | None = None
    """Predictions of devices nearby, used if no edge predicts."""
    observer: PrefetchObserver | None = None
    """Receives events for cooperation; None without cooperation."""


@dataclass(frozen=True, slots=True)
class PrefetchState:
    """State and counters of the device's cache, for metrics."""

    k: int
    query_features: int
    """Objects in the current snapshot, and features extracted from a photo for it."""
    held_models: int
    held_bytes: int
    """Models and bytes in memory."""
    lookups: int
    hits: int
    """Photos that were looked up, and hits among them."""
    account: PrefetchAccount
    """Counters of fetched and wasted models."""
    expected_ms: float
    miss_ms: float
    """E[L] of the last decision, 0 before the first; L_miss [ms]."""


@dataclass(frozen=True, slots=True)
class Note:
    """A recognition by the device itself or by a tier."""

    found: RecognizedObject
    """The answer."""
    features: Features | None = None
    """Features of the photo, if known."""
    prediction: Prediction | None = None
    """The edge's prediction of the next objects."""
    seen_by_edge: bool = False
    """Whether the edge answered; then the recognition is not reported to it."""


class PrefetchController:
    """Fills the device's snapshot with the objects that it will probably see next.

    Parameters
    ----------
    catalogue : str
        The catalogue of the objects.
    snapshots : Snapshots
        The snapshot that requests use.
    profiler : DeviceProfiler
        The terms of equation 4.1.
    held : HeldModels
        The models in memory; only the prefetcher changes them.
    sources : PrefetchSources
        Sources of models, listings and predictions.
    settings : PrefetchSettings
        Limits.
    clock : Clock
        Must run in real time.
    background : BackgroundWorker or None
        The background thread; by default one of its own. The simulation passes another one.
    """

    def __init__(  # noqa: PLR0913, PLR0917  all parts are created here
        self,
        catalogue: str,
        snapshots: Snapshots,
        profiler: DeviceProfiler,
        held: HeldModels,
        sources: PrefetchSources,
        settings: PrefetchSettings,
        clock: Clock,
        background: BackgroundWorker | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._snapshots = snapshots
        self._profiler = profiler
        self._optimizer = PrefetchOptimizer(profiler.profile.curves(settings.k_max))
        self._held = held
        self._observer = sources.observer
        self._settings = settings
        self._clock = clock
        self._log = get_logger("device.prefetcher").bind(catalogue=catalogue)
        self._background = background or BackgroundWorker(clock, "nearsight-prefetch")
        self._notes: deque[Note] = deque(maxlen=_MOST_NOTES)
        # From here on, only the background thread writes.
        self._fetcher = ModelFetcher(
            catalogue,
            sources.models,
            self._background,
            settings,
            clock,
            self._models_arrived,
            lambda _failed: self._assemble(),
            overtake=sources.observer is None,  # a model from devices nearby may justify waiting
        )
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
        self._unanswered = False  # whether no tier answers photos
        self.listing: Listing | None = None
        """The last listing of the catalogue; None before a first change or call of `list_objects`."""
        self._absent: set[str] = set()
        self._current = ""
        self._inputs: PrefetchFacts | None = None
        self._decision: PrefetchDecision | None = None
        self._decided_s = 0.0
        self._k_max = settings.k_max
        self._background.start()
        if sources.observer is not None:
            self.list_objects()
        if not self._has_edge:
            self._sync.poll(partial(lister.get_revision, timeout_s), settings.watch_s)

    # Called by request threads

    def note(self, note: Note) -> None:
        """Queue a recognition by the device or by a tier, for `process_notes`; does not block."""
        self._notes.append(note)

    def process_notes(self) -> None:
        """Process queued recognitions in the background: after an outcome, which must not wait for this."""
        if self._notes:
            self._background.submit(self._take_notes, name="notes")

    def note_tiers(self, *, answering: bool) -> None:
        """Note whether any tier answers photos; does not block."""
        if answering is self._unanswered:  # it has changed
            self._background.submit(partial(self._note_tiers, answering=answering))

    def list_objects(self) -> None:
        """List the catalogue now, without waiting for a change of its revision."""
        self._sync.sync_soon()

    # Reports

    @property
    def state(self) -> PrefetchState:
        """The current state, for metrics."""
        snapshot, profiler, decision = self._snapshots.current, self._profiler, self._decision
        hits = profiler.hits  # read first, as both may increase
        return PrefetchState(
            len(snapshot),
            snapshot.query_features,
            len(self._held),
            self._held.size_bytes,
            profiler.lookups,
            hits,
            self._held.account,
            decision.terms.expected_ms if decision else 0.0,
            profiler.miss_ms,
        )

    def explain(self) -> Explanation | None:
        """The last decision with its terms and alternatives; None before the first."""
        decision = self._decision
        if decision is None:
            return None
        age_s = max(0.0, self._clock.monotonic() - self._decided_s)
        return Explanation(
            self._catalogue,
            age_s,
            decision.terms,
            decision.alternatives,
            self._k_max,
            decision.why,
            decision.object_ids,
            tuple(self._facts()),
        )

    def why_empty(self) -> str:
        """The reason why the cache is empty, in one sentence for people; an empty text if it is not."""
        if self._snapshots.current.recognizer.models:
            return ""
        return why_empty(self._decision, recognised=bool(self._current), edge_away=self._edge_away)

    def _facts(self) -> list[tuple[str, str]]:
        state = self.state
        account = state.account
        failures = self._forecasts.failures
        edge = "answers" if not failures else f"no answer, {failures} consecutive failures"
        if not self._has_edge:
            edge = "no edge"
        empty, dataset = self.why_empty(), self._profiler.profile.profiles[0].dataset or "measured"
        return [
            *([("why empty", empty)] if empty else []),
            ("current object", self._current),
            ("in use", f"{state.k} objects, {state.query_features} features"),
            ("held", f"{state.held_models} models, {format_bytes(state.held_bytes)}"),
            ("lookups", f"{state.hits} hits of {state.lookups}"),
            ("fetched", f"{account.fetched_models} models, {format_bytes(account.fetched_bytes)}"),
            (
                "removed without a hit",
                f"{account.wasted_models} models, {format_bytes(account.wasted_bytes)}",
            ),
            ("miss latency", self._profiler.miss_why),
            ("next photo of the same object", f"{self._profiler.stays:.2f}"),
            ("lookup", f"x{self._profiler.correction:.2f} of the profile ({dataset})"),
            ("predictions of the edge", edge),
        ]

    def close(self) -> None:
        """Stop the background thread; requests may still be answered from the last snapshot."""
        self._background.stop(timeout_s=2.0)

    # In the background thread: processing of recognitions

    def _take_notes(self) -> None:
        while self._notes:
            self._follow(self._notes.popleft())

    def _follow(self, note: Note) -> None:
        name = note.found.object_id
        if self._observer is not None:
            self._observer.followed(self._current, note.found, note.features)
        if self._current:
            self._profiler.observe_step(same_object=name == self._current)
        if not self._snapshots.current.recognizer.models:
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
        elif note.seen_by_edge:
            self._decide()
        else:
            self._forecasts.report(name)
            if self._forecasts.get(name) is not None:
                self._decide()
            # Otherwise the current models continue to answer until the edge predicts.

    def _predicted(self, prediction: Prediction | None) -> None:
        """Process a prediction, or None if the edge did not answer."""
        if prediction is not None and prediction.now is not None:
            self._profiler.observe_edge(prediction.now)
        away, was_away = self._forecasts.edge_away, self._edge_away
        if away != was_away:
            self._edge_away = away
            self._fetcher.want(())  # fetches that failed during an outage may be retried at once
            self._inputs = None
            self._unanswered &= away
        if self._forecasts.get(self._current) is not None or not self._has_edge:
            self._decide()
        elif away != was_away:
            self._assemble()
        if prediction is not None:
            self._sync.note_revision(prediction.revision)

    def _note_tiers(self, *, answering: bool) -> None:
        self._unanswered = not answering
        if self._unanswered and not self._forecasts.edge_away:
            self._forecasts.edge_failed("no tier answers photos")
            self._predicted(None)
        self._assemble()

    # Decision

    def _decide(self) -> None:
        """Minimise equation 4.1, if its inputs have changed."""
        if not self._current:
            return
        predicted, profiler = self._forecasts.get(self._current), self._profiler
        following = predicted.following if predicted else NextObjects.nothing()
        if self._absent:  # objects without a model would only take the place of others
            following = following.without(self._absent)
        facts = PrefetchFacts(following, profiler.miss_ms, self._current, profiler.stays, profiler.correction)
        if self._inputs is not None and self._inputs.is_close_to(facts):
            return
        self._inputs = facts
        mean_bytes, self._k_max = self._held.mean_bytes, self._settings.k_max
        if mean_bytes:
            self._k_max = min(self._k_max, int(self._settings.memory_bytes // mean_bytes))
        self._decision = self._optimizer.decide(facts, self._k_max)
        self._decided_s = self._clock.monotonic()
        self._log.debug("decision", why=self._decision.why)
        self._fetcher.want([name for name in self._decision.object_ids if name not in self._held])
        self._assemble()

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
        """Answer with the models of the decision; also with the current ones until all have arrived."""
        decision = self._decision
        if decision is None:
            return
        names = self._names(decision)
        models = {name: model for name in names if (model := self._held.get(name)) is not None}
        if any(self._fetcher.awaits(name) for name in names):
            answering = self._snapshots.current.recognizer.models
            if models.items() <= answering.items():
                return
            stay = [name for name in answering if name not in models][: max(0, self._k_max - len(models))]
            models.update((name, answering[name]) for name in stay)
        wait_s = self._snapshots.serve(self._current, [*models.values()], decision.terms.features)
        if wait_s > 0:
            self._background.submit(self._assemble, name="assemble", after_s=wait_s)
        elif self._observer is not None:
            self._observer.serving([*models.values()])

    def _names(self, decision: PrefetchDecision) -> tuple[str, ...]:
        """The objects to answer with; without an answer of the edge also others in memory, within k_max.

        An empty cache was decided because a tier answers faster. So it stays empty if one still answers.
        """
        if not self._edge_away or not (decision.terms.k or self._unanswered):
            return decision.object_ids
        others = [name for name in self._held.versions() if name not in decision.object_ids]
        return (*decision.object_ids, *reversed(others))[: self._k_max]

    # Versions

    def _listed(self, listing: Listing) -> None:
        """Drop removed and replaced objects, also those whose model only a snapshot still has."""
        self.listing = listing
        if self._observer is not None:
            self._observer.listed(listing)
        self._absent.clear()
        outdated = listing.outdated({*self._held.models, *self._snapshots.models})
        self._held.remove([model.object_id for model in outdated.intersection(self._held.models)])
        self._snapshots.remove({model.object_id for model in outdated})
        self._inputs = None
        self._decide()
