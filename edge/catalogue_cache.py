"""The recognition cache of one catalogue: the parts of figure 3.5 and how they work together.

Requests call `lookup`, `observe`, `note_hit` and `note_miss`, from any thread; none of these waits for
anything. What they note leads to jobs in the background thread::

    note_hit, note_miss ──> improve: rank, decide, judge ──> ModelFetcher ──> models arrive ──> improve
                                          │
                                          └──> build a snapshot of what is here, swap it in
    poll, mismatch ───────> sync: list the objects, drop what is outdated ──> improve
    a device asks ────────> ModelSupply: what is here at once, the rest through the ModelFetcher
    nobody asks ──────────> prefetch: what present devices may look at next joins the snapshot as a guest
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from nearsight.common.background.worker import Job
from nearsight.common.catalogue.answers import Listing
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.object_cache.profile import default_profile
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognizedObject
from nearsight.edge.catalogue_listing import CatalogueListing
from nearsight.edge.idle_prefetch import IdlePrefetch
from nearsight.edge.markov_estimator import MarkovEstimator
from nearsight.edge.model_supply import ModelSupply
from nearsight.edge.optimizer import CacheState, Optimizer, Situation
from nearsight.edge.profile_measurement import ProfileMeasurement
from nearsight.edge.profiler import MissLatency, Profiler
from nearsight.edge.recognizer import Recognizer
from nearsight.edge.regret import RegretMeter
from nearsight.edge.request_distribution import DistributionEstimator, RequestDistribution
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_builder import SnapshotBuilder
from nearsight.edge.state_store import Changes, Learnt


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
    recognizer : Recognizer, optional
        Builds and holds snapshots; the simulation brings its own.
    """

    def __init__(
        self,
        name: str,
        listing: Listing,
        settings: EdgeSettings,
        services: EdgeServices,
        recognizer: Recognizer | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._services = services
        self._clock = services.clock
        self._log = get_logger("cache").bind(catalogue=name)
        cache = settings.cache
        self.recognizer = recognizer or Recognizer(settings.recognition)
        self.estimator = DistributionEstimator(
            RequestDistribution(
                listing.versions,
                prior=cache.prior,
                prior_mass=cache.prior_mass,
                half_life_s=cache.half_life_s,
            ),
            services.clock,
            journal=settings.state is not None,
        )
        self.markov = MarkovEstimator(
            listing.versions, cache.markov, services.clock, journal=settings.state is not None
        )
        self.profiler = Profiler(
            services.profile
            or default_profile(settings.recognition.backend, settings.recognition.query_features),
            MissLatency(cache.miss_prior_ms, cache.miss_window),
        )
        self.optimizer = Optimizer(cache)
        self.regret = RegretMeter(min(cache.k_max, len(listing.versions)), cache.regret_window)
        self.prefetch = IdlePrefetch(settings.prefetch.objects if cache.policy == "adaptive" else 0)
        self._catalogue = CatalogueListing(
            name, listing, services, settings.fetch.timeout_s, listed=self._listed
        )
        self.supply = ModelSupply(
            name,
            lambda: self._catalogue.now,
            self.recognizer,
            settings,
            services,
            arrived=lambda: self._submit(self.improve, "improve"),
            outdated=self._catalogue.outdated,
        )
        self._builder = SnapshotBuilder(
            name,
            self.recognizer,
            self.supply,
            self.estimator,
            self.prefetch,
            services,
            cache.build_share,
        )
        self._measurement = ProfileMeasurement(
            name,
            lambda: self._catalogue.now.versions,
            self.profiler,
            settings.recognition,
            cloud=services.cloud,
            background=services.background,
            clock=services.clock,
        )
        self._counters = threading.Lock()
        self._requests_since_decision = 0
        self.hits = 0
        self.misses = 0
        # From here on only the background thread writes.
        self.decided_s = 0.0
        self._closed = False

    def start(self, learnt: Learnt | None = None) -> None:
        """Begin, with what an earlier run learnt; an edge without any profile measures one first."""
        has_profile = self._services.profile is not None
        if learnt is not None:
            has_profile |= self._restore(learnt)
        if not has_profile and self._settings.cache.k_max > 0:
            self._log.warning(
                "no profile given: measuring a quick one", advice="`nearsight profile` measures a full one"
            )
            self._measurement.start(self._settings.fetch.timeout_s)
        if self._settings.prefetch.objects:
            self._submit(self._prefetch_round, "prefetch", self._settings.prefetch.every_s)
        if self._settings.cache.policy == "everything":
            self._submit(self.improve, "improve")  # it does not wait to be asked

    def _restore(self, learnt: Learnt) -> bool:
        """Take over what an earlier run learnt; whether there was a profile in it."""
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
            self._submit(self.improve, "improve")
        return usable

    def learnt(self) -> Changes:
        """What was learnt since the last call, for a store to write."""
        return Changes(self.estimator.changes(), self.markov.changes(), self.profiler.measured())

    def not_written(self, changes: Changes) -> None:
        """The changes could not be written: they come again."""
        self.estimator.redo(changes.popularity)
        self.markov.redo(changes.transitions)

    def close(self) -> None:
        """Stop fetching and building; requests that still hold the cache finish with its last snapshot."""
        self._closed = True
        self._catalogue.close()
        self._measurement.close()
        self.supply.close()
        self._services.metrics.forget(self.name)

    # On the request path

    @property
    def size(self) -> int:
        """Objects in the snapshot that answers."""
        return len(self.recognizer.snapshot)

    @property
    def listing(self) -> Listing:
        """The catalogue as the edge knows it."""
        return self._catalogue.now

    @property
    def revision(self) -> int:
        """Revision of the catalogue that the cache knows."""
        return self._catalogue.now.revision

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
            self._catalogue.outdated()
            return None
        self._services.metrics.device_hits.labels(self.name).inc()
        self._count_towards_decision()
        return following

    def note_hit(self, object_id: str) -> None:
        """The cache answered with this object."""
        metrics = self._services.metrics
        metrics.hits.labels(self.name).inc()
        self._note_looked(object_id, held=True)
        self._count(hit=True)

    def note_miss(self, answer: Known | None, miss_ms: float | None, *, looked: bool = True) -> None:
        """The cloud answered, with an object or with unknown; unknown is passed on and not counted.

        Parameters
        ----------
        answer : Known, optional
            The object.
        miss_ms : float, optional
            Time to the cloud's first answer: what a photo costs that a larger cache would have answered. The
            second trip of photos whose features are unknown is no part of it: no cache spares that, and the
            more a cache answers, the more of its misses are of that kind. None for a second trip alone.
        looked : bool
            False for requests that were given away without a look into the cache.
        """
        metrics = self._services.metrics
        metrics.misses.labels(self.name).inc()
        if miss_ms is not None:
            self.profiler.observe_miss(miss_ms)
        self._count(hit=False)
        if answer is None:
            metrics.unknown.labels(self.name).inc()
            if looked:
                self._note_looked(None, held=False)
            return
        if answer.version > self.listing.versions.get(answer.object_id, -1):
            self._catalogue.outdated()
        held = answer.object_id in self.recognizer.snapshot.models
        if looked:
            self._note_looked(answer.object_id, held=held)
            metrics.recognition_misses.labels(self.name).inc(held)
        if not held:
            self._submit(self.improve, "improve")

    def _note_looked(self, object_id: str | None, *, held: bool) -> None:
        """A request that looked into the cache was for this object, if it was for any."""
        self.regret.observe(object_id, self.size, held=held)
        if self.prefetch.requested(object_id):
            self._services.metrics.prefetch_useful.labels(self.name).inc()

    def _count(self, *, hit: bool) -> None:
        with self._counters:
            self.hits += hit
            self.misses += not hit
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
            requests, self._requests_since_decision = self._requests_since_decision, 0
        if not self.size:
            self.profiler.relax(requests)
        situation = self._situation()
        costs = situation.costs
        k_max = self._services.load.largest_size(costs.lookup_ms, self._settings.cache.k_max)
        step = self.optimizer.next(
            situation, k_max, self._state, lambda name: self.supply.held(name) is not None
        )
        self.decided_s = self._clock.monotonic()
        self.regret.decided(situation.ranking, costs)
        self._show_decision(step.decision.k, step.decision.terms.expected_ms, costs.miss_ms)
        if step.wanted is not None:
            self.supply.want_for_cache(step.wanted)
        if step.build is not None:
            # Where no cache pays, or the load leaves no room, guests do not keep lookups going.
            stay = bool(step.build) and not step.shrinks
            guests = self.prefetch.guests - step.build if stay else frozenset()
            self._build_soon(step.build, guests, step.why)

    def _situation(self) -> Situation:
        ranking = self.estimator.ranking()
        return Situation(ranking, self.profiler.costs(len(ranking)), self.estimator.recent())

    def _state(self, wanted: frozenset[str]) -> CacheState:
        """The cache as decisions see it: guests are none of their business, unless they are to stay."""
        models = self.recognizer.snapshot.models
        outdated = {name for name, model in models.items() if not self.supply.current(model)}
        residents = frozenset(models) - (self.prefetch.guests - wanted)
        return CacheState(residents, outdated, self.estimator.asked())

    def _build_soon(self, residents: frozenset[str], guests: Collection[str], why: str) -> None:
        """Build now, or decide again when the next build may be."""
        pause_s = self._builder.pause_s()
        if pause_s > 0:
            self._submit(self.improve, "improve", pause_s)
        else:
            self._builder.build(residents, guests, why)

    def _prefetch_round(self) -> None:
        """While nobody asks: see what the present devices may look at next, and have it here."""
        if self._closed:
            return
        settings = self._settings.prefetch
        self._submit(self._prefetch_round, "prefetch", settings.every_s)
        if self._services.load.idle_s() < settings.idle_s or self.supply.fetcher.in_flight:
            return
        residents = frozenset(self.recognizer.snapshot.models) - self.prefetch.guests
        expected = self.markov.expected_next(settings.present_s, settings.devices)
        costs = self.profiler.costs(len(self.listing.versions))
        bound = self._services.load.largest_size(costs.lookup_ms, self._settings.cache.k_max)
        guests = self.prefetch.choose(expected, residents, costs, 1.0 - self.markov.staying)
        guests = guests[: max(0, bound - len(residents))]
        self.supply.want_for_guests(guests)
        here = frozenset(name for name in guests if self.supply.held(name) is not None)
        if here != self.prefetch.guests and not self._builder.pause_s():
            self._builder.build(residents, here, f"{len(here)} guests that present devices may ask for next")

    def sync(self) -> None:
        """List the catalogue's objects again; drop what left it or was replaced."""
        self._catalogue.sync()

    def _listed(self) -> None:
        versions = self.listing.versions
        replaced = [
            name
            for name, model in self.recognizer.snapshot.models.items()
            if name in versions and not self.supply.current(model)
        ]
        self.estimator.set_objects(versions)
        self.markov.set_objects(versions)
        self.estimator.readmit(replaced)
        self._builder.hurry()  # what is outdated goes now
        self.improve()
        self.supply.listed()

    def _show_decision(self, k: int, expected_ms: float, miss_ms: float) -> None:
        metrics = self._services.metrics
        metrics.chosen_size.labels(self.name).set(k)
        metrics.expected_latency.labels(self.name).set(expected_ms / 1e3)
        metrics.miss_latency.labels(self.name).set(miss_ms / 1e3)
        metrics.regret.labels(self.name).set(self.regret.report().regret_ms / 1e3)

    def _submit(self, job: Job, name: str = "", after_s: float = 0.0) -> None:
        named = f"{name} {self.name}" if name else ""
        self._services.background.submit(job, name=named, after_s=after_s)
