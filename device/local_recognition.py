"""All parts of recognition on the device, and their wiring (figure 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import Random

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import NETWORK, OBJECT, Answer, Attempt, Lesson
from nearsight.common.request.effects import Stage
from nearsight.common.request.next_tiers import BreakerState, NextTiers
from nearsight.common.result_cache.stage import ResultStage
from nearsight.common.rpc.client import Channel
from nearsight.device.cooperation.cooperation import Cooperation
from nearsight.device.engine import Outcome
from nearsight.device.prefetching.controller import (
    Note,
    PrefetchController,
    PrefetchSources,
)
from nearsight.device.prefetching.device_profile import DeviceProfile, default_device_profile
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import Contents, LocalSnapshot, Snapshots
from nearsight.device.prefetching.tier_clients import CatalogueClient, EdgeClient, TierCatalogues
from nearsight.device.query import DeviceQuery
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings

EDGE = "edge"

SecondLook = Callable[[Contents, Features], RecognizedObject | None]
"""Second lookup of features that no model matched."""


class DeviceObjectCache:
    """The object cache of a device as a stage of its request flow.

    Parameters
    ----------
    snapshots : Snapshots
        Models with which the device recognises objects itself.
    profiler : DeviceProfiler
        Receives the times of lookups and answers.
    prefetcher : PrefetchController
        Receives each recognised object and its source.
    clock : Clock
        Measures lookups.
    second_look : callable, optional
        Second lookup of photos that the snapshot does not recognise, with the snapshot's contents.
    """

    grain = OBJECT

    def __init__(
        self,
        snapshots: Snapshots,
        profiler: DeviceProfiler,
        prefetcher: PrefetchController,
        clock: Clock,
        second_look: SecondLook | None = None,
    ) -> None:
        self._snapshots = snapshots
        self._profiler = profiler
        self._prefetcher = prefetcher
        self._clock = clock
        self._second_look = second_look

    def features_wanted(self, query: DeviceQuery) -> int | None:
        """The number that the snapshot expects; None if it is empty. The query stores the snapshot."""
        snapshot = query.snapshot = self._snapshots.current
        if not snapshot.recognizer.models:
            return None
        query.began_s = self._clock.monotonic()
        return snapshot.query_features

    def look(self, query: DeviceQuery) -> RecognizedObject | None:
        """Look up the photo; None is a miss."""
        snapshot = query.snapshot
        if snapshot is None:
            return None
        features = query.lookup_features = query.features(snapshot.query_features)
        found = snapshot.recognizer.recognize(features).found
        if found is None and self._second_look is not None:
            found = self._second_look(snapshot.contents, features)
        spent_ms = (self._clock.monotonic() - query.began_s) * 1e3 if query.has_image else None
        k, hit = len(snapshot.recognizer.models), found is not None
        self._profiler.observe_lookup(k, snapshot.query_features, spent_ms, hit=hit)
        if found is not None:
            self._prefetcher.note(Note(found, features))
        return found

    def learn(self, query: DeviceQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Record an answer: its object, and from a tier (with a lesson) also the cost of the miss."""
        if answer.grain == NETWORK:
            return  # a class of a network has no model to prefetch
        found = answer.found
        if lesson is None and found is not None:
            self._prefetcher.note(Note(found))
        if lesson is None or not lesson.complete:
            return
        looked_for = query.snapshot.recognizer.models if query.snapshot is not None else ()
        avoidable = not lesson.unknown and found is not None and found.object_id not in looked_for
        hop = lesson.hop
        tier_ms = lesson.round_trip_ms - hop.next_tier_ms
        transfer_ms = tier_ms - hop.queue_ms - hop.compute_ms if lesson.tier == EDGE else None
        self._profiler.observe_answer(lesson.waited_ms, tier_ms, avoidable=avoidable, transfer_ms=transfer_ms)
        if found is not None:
            self._prefetcher.note(Note(found, query.lookup_features, query.prediction, lesson.tier == EDGE))


class LocalRecognition:
    """The recognition cache of one device, its prefetching, and its cooperation with devices nearby.

    Models come from the edge, or from all tiers and devices nearby if they cooperate.

    Parameters
    ----------
    catalogue : str
        Catalogue of the objects.
    device_id : str
        Name that devices nearby see.
    tiers : sequence of str
        The nearest first.
    connect : callable
        Opens the channel to a tier.
    next_tiers : NextTiers
        For explanations, and the health of the tiers.
    settings : RecognizerSettings
        Settings of the SDK.
    clock : Clock
        Must run in real time.

    Raises
    ------
    NotFound, CorruptStore
        If the profile cannot be used.
    ConfigurationError, MissingDependency
        If an address, a key or the classifier backend cannot be used.
    AddressInUse
        If the configured address for devices nearby is taken.
    """

    def __init__(
        self,
        catalogue: str,
        device_id: str,
        tiers: Sequence[str],
        connect: Callable[[str], Channel],
        next_tiers: NextTiers,
        settings: RecognizerSettings,
        clock: Clock,
    ) -> None:
        prefetch, peers = settings.prefetch, settings.peers
        profile = _profile(prefetch)
        self._next_tiers = next_tiers
        self.cooperation: Cooperation | None = None
        """Cooperation with devices nearby; None if it is disabled."""
        self.result: ResultStage | None = None
        """The result cache; None if it is disabled."""
        with ExitStack() as opened:
            clients: list[CatalogueClient] = []
            edge: EdgeClient | None = None
            for name in tiers:
                if name == EDGE:
                    clients.append(edge := EdgeClient(connect(name), catalogue, clock))
                elif peers.enabled:
                    clients.append(CatalogueClient(connect(name), catalogue))
                else:
                    continue
                opened.callback(clients[-1].close)
            upstream = TierCatalogues(clients, clock)
            held = HeldModels(prefetch.memory_bytes)
            sources = PrefetchSources(upstream, upstream, edge)
            second_look = None
            if peers.enabled:
                nearby = self.cooperation = Cooperation(
                    catalogue, device_id, held, upstream, peers, prefetch.recognition, clock, Random()
                )
                opened.callback(nearby.close)
                sources = PrefetchSources(nearby.models, upstream, edge, nearby.forecasts, nearby)
                second_look = nearby.adapter.second_look if nearby.adapter is not None else None
            empty = LocalSnapshot(
                ObjectRecognizer.build((), prefetch.recognition), profile.feature_counts[-1]
            )
            snapshots = Snapshots(empty, prefetch.snapshots, prefetch.recognition, clock)
            profiler = DeviceProfiler(profile, prefetch.miss_prior_ms, prefetch.miss_window)
            self.prefetcher = PrefetchController(
                catalogue, snapshots, profiler, held, sources, prefetch, clock
            )
            """Fills the cache; has its state."""
            opened.callback(self.prefetcher.close)
            stage = DeviceObjectCache(snapshots, profiler, self.prefetcher, clock, second_look)
            self.stages: tuple[Stage[DeviceQuery], ...] = (stage,)
            """Stages for the request flow, in their order."""
            if settings.result_cache.enabled:
                self.result = ResultStage(
                    catalogue, lambda: self.prefetcher.listing, settings.result_cache, clock, Random()
                )
                self.stages = (self.result, stage)
                self.prefetcher.list_objects()
            if self.cooperation is not None:
                self.cooperation.start()
            self._opened = opened.pop_all()

    def explain(self) -> Explanation | None:
        """The last decision with its reasons; None before the first decision."""
        explanation = self.prefetcher.explain()
        if explanation is None:
            return None
        offload = tuple((f"offload to {tier}", why) for tier, why in self._next_tiers.why().items())
        nearby = self.cooperation.state.facts() if self.cooperation is not None else ()
        result = (("result cache", self.result.state.why),) if self.result is not None else ()
        return replace(explanation, facts=(*explanation.facts, *result, *offload, *nearby))

    def on_outcome(self, outcome: Outcome, attempts: tuple[Attempt, ...], latency_ms: float) -> None:
        """Let the prefetcher work, and know whether any tier answers photos (see `RecognizerObserver`)."""
        del latency_ms
        self.prefetcher.process_notes()
        if not attempts:
            return
        if not isinstance(outcome, NearsightError):
            self.prefetcher.note_tiers(answering=True)
        elif BreakerState.CLOSED not in self._next_tiers.states().values():
            self.prefetcher.note_tiers(answering=False)

    def close(self) -> None:
        """Stop prefetching, leave the group of devices nearby, and disconnect."""
        self._opened.close()


def _profile(settings: PrefetchSettings) -> DeviceProfile:
    """The measured profile, or the built-in default, with the numbers of features to choose from."""
    log, backend = get_logger("device"), settings.recognition.backend
    if settings.profile is None:
        profile = default_device_profile(backend)
        log.info(
            "no device profile given: the built-in default, adjusted at run time, is used",
            advice="`nearsight profile DIR --device` measures this machine",
        )
    else:
        profile = DeviceProfile.load(settings.profile)
        if any(one.backend != backend for one in profile.profiles):
            log.warning(
                "the device profile was measured with another classifier",
                profile=profile.profiles[0].backend,
                used=backend,
            )
    return profile.only(settings.features) if settings.features else profile
