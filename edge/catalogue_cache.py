"""The recognition cache of one catalogue: the components of figure 3.5 and their interaction.

Request threads call `look`, `learn` and `observe`, which do not block. Their observations are processed by
one background thread::

    look, learn ──────────> improve: rank, decide, judge ──> ModelFetcher ──> models arrive ──> improve
                                          │
                                          └──> build a snapshot of the available models, swap it in
    poll, mismatch ───────> CatalogueSync: list the objects, remove outdated models ──> improve
    request of a device ──> ModelSupply: available models at once, the others through the ModelFetcher
    no requests ──────────> prefetch: probable next objects of present devices join the snapshot

The objects of a snapshot are *residents*, which the optimizer chose, and *prefetched* objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from random import Random

from nearsight.common.background.futures import then
from nearsight.common.catalogue.answers import Listing, listing_of
from nearsight.common.catalogue.catalogue_sync import CatalogueSync
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.object_cache.profile import default_profile
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer, Lesson
from nearsight.common.request.effects import Stage, Standby
from nearsight.common.request.forms import FEATURES
from nearsight.common.result_cache.stage import ResultStage
from nearsight.edge.model_supply import ModelSupply
from nearsight.edge.optimizer import CacheState, DecisionInputs, Optimizer, residents_among
from nearsight.edge.prediction import IdlePrefetch, MarkovEstimator
from nearsight.edge.profiler import Profiler, Regret
from nearsight.edge.query import EdgeQuery
from nearsight.edge.quick_profile import ProfileMeasurement
from nearsight.edge.request_distribution import DistributionEstimator, RequestDistribution
from nearsight.edge.services import CLOUD, EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_holder import SnapshotBuilder, SnapshotHolder
from nearsight.edge.state_store import Changes, Learnt


class CatalogueCache:
    """Recognition cache of one catalogue: a stage of the edge's request flow, with its background work.

    Parameters
    ----------
    name : str
        Name of the catalogue.
    listing : Listing
        Objects of the catalogue, from the cloud.
    settings : EdgeSettings
        Settings of the daemon.
    services : EdgeServices
        Objects that all caches of the edge share.
    holder : SnapshotHolder, optional
        Builds and holds snapshots; the simulation passes its own.
    replaced : callable, optional
        Called when the cloud's listing shows that another catalogue has this name now; receives that listing.

    Attributes
    ----------
    listing : Listing
        The latest listing of the catalogue.
    hits, misses : int
        Requests answered by the object cache, and requests answered by the cloud.
    decided_s : float
        Time of the last decision, on ``clock``.
    clock : Clock
        Source of time.
    result : ResultStage, optional
        Result cache of the catalogue; None if disabled.
    stages : tuple of Stage
        Stages in the order in which they process requests.
    sync : CatalogueSync
        Synchronises the listing with the cloud.
    standby : Standby, optional
        Answers requests when the cloud fails; None while it has no object.
    """

    grain = OBJECT
    result_stage = ResultStage
    """Factory of the result cache; the simulation overrides it."""

    def __init__(
        self,
        name: str,
        listing: Listing,
        settings: EdgeSettings,
        services: EdgeServices,
        holder: SnapshotHolder | None = None,
        replaced: Callable[[Listing], None] | None = None,
    ) -> None:
        self.name = name
        self.listing = listing
        self.clock = services.clock
        self._settings = settings
        self._services = services
        self._metrics = services.metrics
        self._replaced = replaced
        self._log = get_logger("cache").bind(catalogue=name)
        cache, journal = settings.cache, settings.state is not None
        self.holder = holder or SnapshotHolder(settings.recognition)
        self._builder = SnapshotBuilder(self.holder, cache.build_share, self.clock, self._metrics, name)
        distribution = RequestDistribution(
            listing.versions, prior=cache.prior, prior_mass=cache.prior_mass, half_life_s=cache.half_life_s
        )
        self.estimator = DistributionEstimator(distribution, services.clock, journal=journal)
        self.markov = MarkovEstimator(listing.versions, cache.markov, services.clock, journal=journal)
        recognition = settings.recognition
        profile = services.profile or default_profile(recognition.backend, recognition.query_features)
        self.profiler = Profiler(profile, cache.miss_prior_ms, cache.miss_window)
        self.optimizer = Optimizer(cache)
        self.regret = Regret(self._largest_size(), cache.regret_window)
        # Read when the metrics are collected: the sums over the window are not needed for decisions.
        self._metrics.regret.labels(name).set_function(lambda: self.regret.report().regret_ms / 1e3)
        self.prefetch = IdlePrefetch(settings.prefetch.objects if cache.policy == "adaptive" else 0)
        self.sync = CatalogueSync(name, self._list_objects, services.background, self.clock, self._listed)
        self.supply = ModelSupply(
            name,
            lambda: self.listing,
            lambda: self.holder.snapshot.models,
            settings,
            services,
            arrived=self._improve_soon,
            outdated=self.sync.sync_soon,
        )
        self._measurement = ProfileMeasurement(
            name, lambda: self.listing.versions, self.profiler, settings, services
        )
        self.result = (
            self.result_stage(name, lambda: self.listing, settings.result_cache, services.clock, Random())
            if settings.result_cache.enabled
            else None
        )
        self.stages: tuple[Stage[EdgeQuery], ...] = (self,) if self.result is None else (self.result, self)
        self.standby: Standby[EdgeQuery] | None = None
        self._counters = threading.Lock()
        self._requests_since_decision = 0
        self.hits = 0
        self.misses = 0
        # Only the background thread writes the attributes below.
        self.decided_s = 0.0
        self._most_objects = cache.k_max
        self._closed = False

    def start(self, learnt: Learnt | None = None) -> None:
        """Start, with the state of an earlier run. Without a profile, the edge measures one first."""
        if learnt is not None:
            self._restore(learnt)
        self._update_profile()
        prefetch = self._settings.prefetch
        if prefetch.objects:
            self._services.background.submit(self._prefetch_round, name="prefetch", after_s=prefetch.every_s)
        if self._settings.cache.policy == "everything":
            self._improve_soon()  # this policy needs no requests

    def _largest_size(self) -> int:
        """Number of objects that catalogue and settings permit."""
        return min(self._settings.cache.k_max, len(self.listing.versions))

    def _update_profile(self) -> None:
        """Measure a profile if there is none, or the catalogue has outgrown it."""
        if self._services.profile is None and self._settings.cache.k_max > 0:
            self._measurement.update()

    def _restore(self, learnt: Learnt) -> None:
        """Load the state of an earlier run."""
        objects = self.estimator.restore(learnt.popularity)
        transitions = self.markov.restore(learnt.transitions)
        measured, ours = learnt.measured, self._settings.recognition
        usable = measured is not None and (
            (measured.profile.backend, measured.profile.query_features) == (ours.backend, ours.query_features)
        )
        if measured is not None and usable:
            self.profiler.restore(measured, keep_profile=self._services.profile is not None)
        self._log.info("restored", objects=objects, transitions=transitions, measured=usable)
        if objects:
            self._improve_soon()

    def learnt(self) -> Changes:
        """Changes of the learnt state since the last call, to be written to the store."""
        return Changes(self.estimator.changes(), self.markov.changes(), self.profiler.measured())

    def redo(self, changes: Changes) -> None:
        """Receive changes that could not be written; the next call of `learnt` returns them again."""
        self.estimator.redo(changes.popularity)
        self.markov.redo(changes.transitions)

    def close(self) -> None:
        """Stop fetching and building. Requests in progress finish with the last snapshot."""
        self._closed = True
        self.sync.close()
        self._measurement.close()
        self.supply.close()
        self._metrics.remove(self.name)

    # Methods of a stage of the request flow

    def features_wanted(self, query: EdgeQuery) -> int | None:
        """Number of features to extract; None if the request is passed on, or the cache is empty."""
        if query.asked_again:
            return None
        busy = not query.may_work
        if query.has_image and query.result_look is not None and query.result_look.missed:
            query.may_work = False  # the cloud recognises more objects, and receives the request at once
        query.extraction_ms = self.profiler.extraction.mean
        first_ms, last_ms = self._forwarding_overhead_ms(query)
        self.profiler.observe_query(image=query.has_image, overhead_ms=last_ms)
        if query.may_work and self.holder.snapshot.models:
            query.began_s = self.clock.monotonic()
            return self._settings.recognition.query_features
        query.overhead_ms = first_ms  # 0 after a lookup, which has extracted the features
        if busy:
            self._metrics.given_away.labels(self.name).inc()
        return None

    def _forwarding_overhead_ms(self, query: EdgeQuery) -> tuple[float, float]:
        """Extra latency [ms] of the cloud's first and last answer to a photo without features.

        After a miss in its cache, an edge has the features. An edge with an empty cache sends the photo, or
        extracts the features first. The difference belongs to f(0), not to the miss latency. Otherwise it
        would be charged to every cache size, and an edge with an empty cache would consider all sizes too
        slow.
        """
        if not query.has_image:
            return 0.0, 0.0
        extraction_ms = query.extraction_ms if query.may_work else None
        if self._settings.forward != "auto":
            spent_ms = extraction_ms or 0.0 if self._settings.forward == FEATURES else 0.0
            return spent_ms, spent_ms
        return self._services.next_tiers.overhead(CLOUD, query.image_bytes, extraction_ms)

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """Look up the object in the photo; None is a miss."""
        found = self._found(query)
        self._services.load.computed((self.clock.monotonic() - query.began_s) * 1e3)
        if found is not None:
            self._metrics.hits.labels(self.name).inc()
            self._note_lookup(found.object_id, held=True)
            self._count(hits=1)
        elif self.result is not None:
            self.result.missed(query)
        return found

    def _found(self, query: EdgeQuery) -> RecognizedObject | None:
        """The object that the snapshot recognises. The twin replaces this by its own lookup."""
        if query.features is None:
            return None
        snapshot = self.holder.snapshot
        started_s = self.clock.monotonic()
        result = snapshot.recognize(query.features)
        lookup_s = self.clock.monotonic() - started_s
        self.profiler.observe_lookup(len(snapshot), lookup_s * 1e3)
        self._metrics.lookup.labels(self.name).observe(lookup_s)
        return result.found

    def learn(self, query: EdgeQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Learn miss latency and popularity from an answer of the cloud; of another stage without a lesson.

        Unknown photos add nothing to the popularity. The miss latency is the time until the cloud's first
        answer: a larger cache would have saved this time. It does not include the second trip of photos whose
        features are unknown. No cache saves that trip, and with a higher hit ratio more of the misses are of
        this kind.
        """
        if lesson is None:
            if query.result_look is not None:
                self._services.load.computed(query.result_look.spent_ms)
            self._count()
            return
        found = answer.found
        self._metrics.misses.labels(self.name).inc()
        if not query.asked_again:
            self.profiler.observe_miss(max(0.0, lesson.first_ms - query.overhead_ms))
        self._count(misses=1)
        if found is None:
            self._metrics.unknown.labels(self.name).inc()
            if query.may_work:
                self._note_lookup(None, held=False)
            return
        if found.version > self.listing.versions.get(found.object_id, -1):
            self.sync.sync_soon()
        held = found.object_id in self.holder.snapshot.models
        if query.may_work:
            self._note_lookup(found.object_id, held=held)
            self._metrics.recognition_misses.labels(self.name).inc(held)
        if not held:
            self._improve_soon()

    def _note_lookup(self, object_id: str | None, *, held: bool) -> None:
        """Record the object of a request that looked into the cache; None if the object is unknown."""
        self.regret.observe(object_id, len(self.holder.snapshot.models), held=held)
        if self.prefetch.requested(object_id):
            self._metrics.prefetch_useful.labels(self.name).inc()

    def _count(self, *, hits: int = 0, misses: int = 0) -> None:
        """Count a request; after every ``optimize_every`` requests a decision is due."""
        with self._counters:
            self.hits += hits
            self.misses += misses
            self._requests_since_decision += 1
            due = self._requests_since_decision >= self._settings.cache.optimize_every
        if due:
            self._improve_soon()

    # Methods of the request path

    @property
    def size(self) -> int:
        """Number of objects in the active snapshot."""
        return len(self.holder.snapshot)

    def observe(self, device_id: str, object_id: str) -> NextObjects | None:
        """Learn that a device saw an object, whoever recognised it; return the probable next objects.

        None if the catalogue does not have this object.
        """
        self.estimator.count(object_id)
        return self.markov.observe(device_id, object_id)

    def note_first(self, device_id: str, object_id: str) -> None:
        """Learn from an answer of the cloud that preceded the creation of this cache."""
        if self.observe(device_id, object_id) is not None:
            self._improve_soon()

    def note_device_hit(self, device_id: str, object_id: str) -> NextObjects | None:
        """Learn from a local hit of a device; return the probable next objects, None for an unknown id."""
        following = self.observe(device_id, object_id)
        if following is None:
            self.sync.sync_soon()
            return None
        self._metrics.device_hits.labels(self.name).inc()
        self._count()
        return following

    # Methods of the background thread

    def limit(self, objects: int) -> None:
        """Set the maximum number of objects, because other parts need memory."""
        before, self._most_objects = self._most_objects, min(objects, self._settings.cache.k_max)
        residents = self.size - len(self.prefetch.prefetched)
        if self._most_objects < residents or before <= residents < self._most_objects:
            self.improve()

    def _improve_soon(self, after_s: float = 0.0) -> None:
        self._services.background.submit(self.improve, name="improve", after_s=after_s)

    def improve(self) -> None:
        """Decide which objects the cache should hold, fetch missing models, build with the available ones."""
        if self._closed:
            return
        with self._counters:
            requests, self._requests_since_decision = self._requests_since_decision, 0
        if not self.size:
            self.profiler.relax(requests)
        ranking = self.estimator.ranking()
        costs = self.profiler.costs(len(ranking))
        k_max = self._services.load.largest_size(costs.lookup_ms, self._most_objects)
        inputs = DecisionInputs(ranking, costs, self.estimator.recent)
        step = self.optimizer.next(
            inputs, k_max, self._state(), lambda name: self.supply.held(name) is not None
        )
        self.decided_s = self.clock.monotonic()
        self.regret.decided(ranking, costs)
        self._metrics.chosen_size.labels(self.name).set(step.decision.k)
        self._metrics.expected_latency.labels(self.name).set(step.decision.terms.expected_ms / 1e3)
        self._metrics.miss_latency.labels(self.name).set(costs.miss_ms / 1e3)
        if step.wanted is not None:
            self.supply.want_for_cache(step.wanted)
        if step.build is None:
            return
        pause_s = self._builder.pause_s()
        if pause_s > 0:
            self._improve_soon(pause_s)
            return
        # If no cache pays off, or the load forbids one, prefetched objects must not cause lookups.
        stay = bool(step.build) and not step.shrinks
        self._build(step.build, self.prefetch.prefetched - step.build if stay else frozenset(), step.why)

    def _state(self) -> CacheState:
        """Present state of the cache, for a decision."""
        models = self.holder.snapshot.models
        outdated = {name for name, model in models.items() if not self.supply.current(model)}
        return CacheState(frozenset(models), outdated, self.estimator.asked(), self.prefetch.prefetched)

    def _build(self, residents: frozenset[str], prefetched: Collection[str], why: str) -> None:
        """Build a snapshot of those of these objects whose models are available, and swap it in."""
        names = sorted(residents.union(prefetched))
        models = [model for name in names if (model := self.supply.held(name)) is not None]
        former = self.holder.snapshot
        snapshot = self._builder.build(models, why)
        self.estimator.entered(snapshot.object_ids)
        entered, wasted = self.prefetch.built(snapshot.object_ids & frozenset(prefetched), residents)
        self.supply.built(former, snapshot)
        self._metrics.prefetched.labels(self.name).inc(entered)
        self._metrics.prefetch_wasted.labels(self.name).inc(wasted)

    def _prefetch_round(self) -> None:
        """While the edge is idle: predict the next objects of present devices, and prefetch them."""
        if self._closed:
            return
        settings = self._settings.prefetch
        self._services.background.submit(self._prefetch_round, name="prefetch", after_s=settings.every_s)
        if self._services.load.idle_s() < settings.idle_s or self.supply.fetcher.in_flight:
            return
        decision = self.optimizer.decision
        wanted = frozenset(decision.object_ids if decision is not None else ())
        residents = residents_among(self.holder.snapshot.object_ids, self.prefetch.prefetched, wanted)
        expected = self.markov.expected_next(settings.present_s, settings.devices)
        costs = self.profiler.costs(len(self.listing.versions))
        bound = self._services.load.largest_size(costs.lookup_ms, self._most_objects)
        chosen = self.prefetch.choose(expected, residents, costs)
        chosen = chosen[: max(0, bound - len(residents))]
        self.supply.want_to_prefetch(chosen)
        here = frozenset(name for name in chosen if self.supply.held(name) is not None)
        if here == self.prefetch.prefetched:
            return
        if residents | here == self.holder.snapshot.object_ids:
            self.prefetch.built(here, residents)  # without a build: prefetched objects became residents
        elif not self._builder.pause_s():
            self._build(residents, here, f"{len(here)} objects that present devices may request next")

    def _list_objects(self) -> Future[Listing]:
        asked = self._services.cloud.list_objects(self.name, self._settings.fetch.timeout_s)
        return then(asked, listing_of)

    def _listed(self, listing: Listing) -> None:
        """Remove objects that left the catalogue or were replaced."""
        if self._replaced is not None and listing.contradicts(self.listing):
            self._replaced(listing)
            return
        self.listing = listing
        if self._largest_size() > self.regret.sizes[-1]:  # earlier requests have no costs of the new sizes
            self.regret = Regret(self._largest_size(), self._settings.cache.regret_window)
        replaced = [
            name
            for name, model in self.holder.snapshot.models.items()
            if name in listing.versions and not self.supply.current(model)
        ]
        self.estimator.set_objects(listing.versions)
        self.markov.set_objects(listing.versions)
        self.estimator.readmit(replaced)
        self._builder.end_pause()
        self.improve()
        self.supply.listed()
        self._update_profile()
