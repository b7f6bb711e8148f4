"""The recognition cache of one catalogue: the parts of figure 3.5 and how they work together.

Requests call `lookup`, `note_hit` and `note_miss`, from any thread; none of these waits for anything. What
they note leads to jobs in the background thread::

    note_hit, note_miss ──> improve: rank, decide, judge ──> ModelFetcher ──> models arrive ──> improve
                                          │
                                          └──> build a snapshot of what is here, swap it in
    poll, mismatch ───────> sync: list the objects, drop what is outdated ──> improve
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearsight.common.caching.cache_change import CacheState
from nearsight.common.caching.explanation import Explanation
from nearsight.common.caching.miss_latency import MissLatency
from nearsight.common.caching.next_objects import NextObjects
from nearsight.common.caching.profile import CacheProfile, default_profile
from nearsight.common.caching.request_distribution import RequestDistribution
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.client import Reply
from nearsight.edge.background import BackgroundWorker, Job
from nearsight.edge.cloud_client import CloudClient, FetchedModels, Listing, listing_of, models_of, when_done
from nearsight.edge.distribution_estimator import DistributionEstimator
from nearsight.edge.markov_estimator import MarkovEstimator, markov_model
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.model_fetcher import ModelFetcher
from nearsight.edge.optimizer import AdaptivePolicy, Optimizer
from nearsight.edge.profiler import Profiler
from nearsight.edge.quick_profile import measure_quick_profile, sample_of
from nearsight.edge.recognizer import Recognizer
from nearsight.edge.settings import EdgeSettings

_SYNC_AT_MOST_EVERY_S = 1.0
_PROFILE_RETRY_S = 30.0
_PROFILE_SEED = 1


@dataclass(frozen=True, slots=True)
class EdgeServices:
    """What the caches of all catalogues share."""

    cloud: CloudClient
    background: BackgroundWorker
    metrics: EdgeMetrics
    clock: Clock
    profile: CacheProfile | None


@dataclass(frozen=True, slots=True)
class Known:
    """What the cloud said that an image shows."""

    object_id: str
    version: int


class CatalogueCache:
    """One catalogue's cache.

    Parameters
    ----------
    name : str
        Of the catalogue.
    listing : Listing
        Its objects, as the cloud listed them.
    settings : EdgeSettings
        Of the daemon.
    services : EdgeServices
        Shared parts.
    """

    def __init__(self, name: str, listing: Listing, settings: EdgeSettings, services: EdgeServices) -> None:
        self.name = name
        self._settings = settings
        self._services = services
        self._clock = services.clock
        self._log = get_logger("cache").bind(catalogue=name)
        cache = settings.cache
        self.recognizer = Recognizer(settings.recognition)
        self.estimator = DistributionEstimator(
            RequestDistribution(listing.versions, prior=cache.prior, half_life_s=cache.half_life_s),
            services.clock,
        )
        self.markov = MarkovEstimator(
            markov_model(listing.versions, cache.markov, journal=False), services.clock, cache.markov
        )
        self.profiler = Profiler(
            services.profile
            or default_profile(settings.recognition.backend, settings.recognition.query_features),
            MissLatency(cache.miss_prior_ms, cache.miss_window),
        )
        self.optimizer = Optimizer(AdaptivePolicy(), cache.k_max, cache.least_gain)
        self.fetcher = ModelFetcher(
            name, services.cloud, services.background, settings.fetch, services.clock, self._models_arrived
        )
        self._counters = threading.Lock()
        self._requests_since_decision = 0
        self._hits = 0
        self._misses = 0
        # From here on only the background thread writes.
        self._listing = listing
        self._fetched: dict[str, ObjectModel] = {}
        self._target: frozenset[str] = frozenset()
        self._next_build_s = 0.0
        self._decided_s = 0.0
        self._last_sync_s = services.clock.monotonic()
        self._sync_open = False
        self._closed = False

    def start(self) -> None:
        """Begin: an edge without a profile measures one first."""
        if self._services.profile is None and self._settings.cache.k_max > 0:
            self._log.warning(
                "no profile given: measuring a quick one", advice="`nearsight profile` measures a full one"
            )
            self._fetch_profile_models()

    def close(self) -> None:
        """Stop fetching and building; requests that still hold the cache finish with its last snapshot."""
        self._closed = True
        self.fetcher.want(())
        self._services.metrics.forget(self.name)

    # On the request path

    @property
    def size(self) -> int:
        """Objects in the snapshot that answers."""
        return len(self.recognizer.snapshot)

    @property
    def revision(self) -> int:
        """Revision of the catalogue that the cache knows."""
        return self._listing.revision

    def lookup(self, features: Features) -> RecognizedObject | None:
        """Ask the cache; None is a miss."""
        snapshot = self.recognizer.snapshot
        started_s = self._clock.monotonic()
        result = snapshot.recognize(features)
        lookup_s = self._clock.monotonic() - started_s
        self.profiler.observe_lookup(len(snapshot), lookup_s * 1e3)
        self._services.metrics.lookup.labels(self.name).observe(lookup_s)
        return result.found

    def observe(self, device_id: str, object_id: str) -> NextObjects | None:
        """A device was shown to look at an object, whoever recognised it: learn, and say what may follow.

        None if the catalogue has no such object.
        """
        self.estimator.count(object_id)
        return self.markov.observe(device_id, object_id)

    def note_device_hit(self, device_id: str, object_id: str) -> NextObjects | None:
        """A device recognised this object by itself; what may follow, None if there is no such object."""
        following = self.observe(device_id, object_id)
        if following is None:
            self._submit(self.sync, "sync")
            return None
        self._services.metrics.device_hits.labels(self.name).inc()
        self._count_towards_decision()
        return following

    def note_hit(self) -> None:
        """The cache answered."""
        self._services.metrics.hits.labels(self.name).inc()
        self._count(hit=True)

    def note_miss(self, answer: Known | None, round_trip_ms: float) -> None:
        """The cloud answered, with an object or with unknown; unknown is passed on and not counted."""
        metrics = self._services.metrics
        metrics.misses.labels(self.name).inc()
        self.profiler.observe_miss(round_trip_ms)
        self._count(hit=False)
        if answer is None:
            metrics.unknown.labels(self.name).inc()
            return
        if answer.version > self._listing.versions.get(answer.object_id, -1):
            self._submit(self.sync, "sync")
        if answer.object_id in self.recognizer.snapshot.models:
            metrics.recognition_misses.labels(self.name).inc()
        else:
            self._submit(self.improve, "improve")

    def _count(self, *, hit: bool) -> None:
        with self._counters:
            self._hits += hit
            self._misses += not hit
        self._count_towards_decision()

    def _count_towards_decision(self) -> None:
        with self._counters:
            self._requests_since_decision += 1
            due = self._requests_since_decision >= self._settings.cache.optimize_every
        if due:
            self._submit(self.improve, "improve")

    # In the background thread

    def improve(self) -> None:
        """Decide what belongs into the cache, fetch what is missing, build with what is here."""
        if self._closed:
            return
        with self._counters:
            self._requests_since_decision = 0
        if not self.size:
            self.profiler.relax()
        ranking = self.estimator.ranking()
        costs = self.profiler.costs(len(ranking))
        decision = self.optimizer.decide(ranking, costs)
        self._decided_s = self._clock.monotonic()
        self._show_decision(decision.k, decision.terms.expected_ms, costs.miss_ms)
        state = self._state()
        wanted = frozenset(decision.object_ids)
        if self.optimizer.judge(state, wanted, ranking, costs).worthwhile:
            self._target = wanted
            self.fetcher.want([name for name in decision.object_ids if self._held(name) is None])
        available = frozenset(name for name in self._target if self._held(name) is not None)
        change = self.optimizer.judge(state, available, ranking, costs)
        if change.worthwhile:
            self._build(available, change.why)

    def _state(self) -> CacheState:
        models = self.recognizer.snapshot.models
        outdated = {name for name, model in models.items() if not self._current(model)}
        return CacheState(frozenset(models), outdated, self.estimator.asked())

    def _current(self, model: ObjectModel) -> bool:
        return self._listing.versions.get(model.object_id) == model.version

    def _held(self, object_id: str) -> ObjectModel | None:
        """The current model of an object, if it is here."""
        for held in (self._fetched, self.recognizer.snapshot.models):
            model = held.get(object_id)
            if model is not None and self._current(model):
                return model
        return None

    def _build(self, object_ids: frozenset[str], why: str) -> None:
        """Build a snapshot of these objects, whose models are here, and swap it in."""
        started_s = self._clock.monotonic()
        if started_s < self._next_build_s:
            self._submit(self.improve, "improve", self._next_build_s - started_s)
            return
        models = [model for name in sorted(object_ids) if (model := self._held(name)) is not None]
        snapshot = self.recognizer.build(models)
        self.recognizer.swap(snapshot)
        finished_s = self._clock.monotonic()
        build_s = finished_s - started_s
        self._next_build_s = finished_s + build_s * (1 / self._settings.cache.build_share - 1)
        self.estimator.entered(snapshot.object_ids)
        self._fetched = {
            name: model
            for name, model in self._fetched.items()
            if name in self._target and name not in snapshot.models
        }
        self._show_build(snapshot, build_s)
        self._log.info(
            "snapshot",
            objects=len(snapshot),
            backend=snapshot.backend,
            build_ms=round(build_s * 1e3),
            why=why,
        )

    def _models_arrived(self, fetched: FetchedModels) -> list[str]:
        metrics = self._services.metrics
        metrics.fetched_models.labels(self.name).inc(len(fetched.models))
        metrics.fetched_bytes.labels(self.name).inc(fetched.size_bytes)
        self._fetched.update((model.object_id, model) for model in fetched.models)
        other_version = [model.object_id for model in fetched.models if not self._current(model)]
        if other_version or fetched.missing or fetched.revision != self.revision:
            self._submit(self.sync, "sync")
        self._submit(self.improve, "improve")
        return other_version

    def sync(self) -> None:
        """List the catalogue's objects again; drop what left it or was replaced."""
        wait_s = self._last_sync_s + _SYNC_AT_MOST_EVERY_S - self._clock.monotonic()
        if wait_s > 0:
            self._submit(self.sync, "sync", wait_s)
            return
        if self._sync_open or self._closed:
            return
        self._sync_open = True
        future = self._services.cloud.list_objects(self.name, self._settings.fetch.timeout_s)
        when_done(future, lambda outcome: self._submit(lambda: self._synced(outcome)))

    def _synced(self, outcome: Reply | NearsightError) -> None:
        self._sync_open = False
        self._last_sync_s = self._clock.monotonic()
        if isinstance(outcome, NearsightError):
            self._log.warning("objects not listed", error=str(outcome))
            return
        self._listing = listing_of(outcome)
        replaced = [
            name
            for name, model in self.recognizer.snapshot.models.items()
            if name in self._listing.versions and not self._current(model)
        ]
        self.estimator.set_objects(self._listing.versions)
        self.markov.set_objects(self._listing.versions)
        self.estimator.readmit(replaced)
        self._fetched = {name: model for name, model in self._fetched.items() if self._current(model)}
        self._next_build_s = 0.0  # what is outdated goes now
        self.improve()

    # The quick profile

    def _fetch_profile_models(self) -> None:
        sample = sample_of(tuple(self._listing.versions))
        if self._closed or not sample:
            return
        future = self._services.cloud.get_models(self.name, sample, self._settings.fetch.timeout_s)
        when_done(future, lambda outcome: self._submit(lambda: self._measure_profile(sample, outcome)))

    def _measure_profile(self, sample: tuple[str, ...], outcome: Reply | NearsightError) -> None:
        models = () if isinstance(outcome, NearsightError) else models_of(outcome, sample).models
        if not models:
            self._log.warning("no models for a quick profile yet: the built-in default stays in use")
            self._submit(self._fetch_profile_models, "profile", _PROFILE_RETRY_S)
            return
        profile = measure_quick_profile(
            models,
            len(self._listing.versions),
            self._settings.recognition,
            self._clock.wall(),
            np.random.default_rng(_PROFILE_SEED),
        )
        self.profiler.use(profile)
        self._log.info(
            "quick profile", lookup_ms=[round(c, 4) for c in profile.lookup_ms], models=len(models)
        )

    # What a person sees

    def details(self) -> Mapping[str, str]:
        """Facts for a person."""
        with self._counters:
            hits, requests = self._hits, self._hits + self._misses
        decision = self.optimizer.decision
        ranking = self.estimator.ranking()
        profile = self.profiler.profile
        return {
            "cached objects": f"{self.size} of {len(ranking)}, {ranking.seen} asked for",
            "hit ratio": f"{hits / requests:.3f} of {requests} requests" if requests else "no request yet",
            "miss latency": f"{self.profiler.miss_ms:.1f} ms",
            "lookup": f"x{self.profiler.correction:.2f} of the profile ({profile.dataset or 'measured'})",
            "fetching": f"{self.fetcher.in_flight} objects",
            "transitions": f"{self.markov.transitions} between objects, {self.markov.devices} devices",
            "decision": decision.why if decision is not None else "none yet",
        }

    def explanation(self) -> Explanation | None:
        """The last decision, None before the first."""
        decision = self.optimizer.decision
        if decision is None:
            return None
        facts = [(name, value) for name, value in self.details().items() if name != "decision"]
        age_s = max(0.0, self._clock.monotonic() - self._decided_s)
        return Explanation.of_cache_size(decision, self.name, age_s, facts)

    def _show_decision(self, k: int, expected_ms: float, miss_ms: float) -> None:
        metrics = self._services.metrics
        metrics.chosen_size.labels(self.name).set(k)
        metrics.expected_latency.labels(self.name).set(expected_ms / 1e3)
        metrics.miss_latency.labels(self.name).set(miss_ms / 1e3)

    def _show_build(self, snapshot: ObjectRecognizer, build_s: float) -> None:
        metrics = self._services.metrics
        metrics.builds.labels(self.name).inc()
        metrics.build_seconds.labels(self.name).inc(build_s)
        metrics.cached_objects.labels(self.name).set(len(snapshot))

    def _submit(self, job: Job, name: str = "", after_s: float = 0.0) -> None:
        named = f"{name} {self.name}" if name else ""
        self._services.background.submit(job, name=named, after_s=after_s)
