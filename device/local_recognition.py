"""Everything that a device does to recognise by itself, wired in one place (figure 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from nearsight.common.clock import Clock
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.device.cooperation.cooperation import Cooperation
from nearsight.device.model_providers import ModelProviders
from nearsight.device.offloading import Offloading
from nearsight.device.prefetching.avoidable_latency import AvoidableLatency
from nearsight.device.prefetching.controller import PrefetchController, PrefetchState
from nearsight.device.prefetching.device_profile import DeviceProfile, default_device_profile
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import LocalCache, LocalSnapshot
from nearsight.device.preparation import Preparation
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.device.remote_tier import TierReply

EDGE = "edge"


class LocalRecognition:
    """The recognition cache of one device, and what fills it.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    tiers : sequence of str
        Names of the tiers that can be asked.
    providers : ModelProviders
        Where models and predictions come from. Owned: started and closed with this.
    settings : RecognizerSettings
        Of the SDK.
    clock : Clock
        Must run in real time.
    next_tier : callable
        Name of the tier that a request would be sent to now.

    Raises
    ------
    NotFound, CorruptStore
        If the profile cannot be used.
    ConfigurationError, MissingDependency
        If the classifier backend cannot.
    AddressInUse
        If devices nearby cannot be served at the address that is set.
    """

    def __init__(
        self,
        catalogue: str,
        tiers: Sequence[str],
        providers: ModelProviders,
        settings: RecognizerSettings,
        clock: Clock,
        next_tier: Callable[[], str],
    ) -> None:
        prefetch = settings.prefetch
        recognition = prefetch.recognition
        profile = _profile(prefetch)
        extractor = OrbExtractor(recognition.fast_threshold)
        empty = LocalSnapshot(ObjectRecognizer.build((), recognition), profile.feature_counts[-1])
        cooperation = providers.cooperation
        adapter = cooperation.adapter if cooperation is not None else None
        cache = LocalCache(empty, adapter.second_look if adapter is not None else None)
        miss_latency = AvoidableLatency(prefetch.miss_prior_ms, prefetch.miss_window)
        self._profiler = DeviceProfiler(profile, miss_latency)
        self._offloading = Offloading(tiers, extractor, recognition, clock)
        self._providers = providers
        self._prefetcher = PrefetchController(
            catalogue, cache, self._profiler, providers.held, providers.sources(), prefetch, clock
        )
        self.prepare = Preparation(
            cache,
            self._profiler,
            self._offloading,
            extractor,
            settings.upload,
            recognition,
            clock,
            next_tier,
            self._prefetcher.note_local,
        )
        with ExitStack() as undo:
            undo.callback(self.close)
            providers.start()
            undo.pop_all()

    @property
    def state(self) -> PrefetchState:
        """For metrics."""
        return self._prefetcher.state

    @property
    def cooperation(self) -> Cooperation | None:
        """What the device does together with those nearby; None if it does not."""
        return self._providers.cooperation

    def tier_replied(self, reply: TierReply) -> None:
        """A tier answered; called on the thread of its channel."""
        own = next((hop for hop in reply.answer.hops if hop.tier == reply.tier), None)
        self._offloading.observe(reply.tier, reply.form, reply.sent_bytes, reply.round_trip_ms, own)
        if not reply.last:
            return
        asked_twice = reply.answer.sent_bytes > reply.sent_bytes
        unknown = asked_twice or reply.answer.found is None
        behind_ms = own.next_tier_ms if own is not None else 0.0
        found = reply.answer.found
        avoidable = not unknown and found is not None and found.object_id not in reply.looked_for
        tier_ms = reply.round_trip_ms - behind_ms
        transfer_ms = None
        if own is not None and reply.tier == EDGE:
            transfer_ms = tier_ms - own.queue_ms - own.compute_ms
        self._profiler.observe_answer(reply.waited_ms, tier_ms, avoidable=avoidable, transfer_ms=transfer_ms)
        self._offloading.observe_outcome(reply.tier, unknown=unknown, behind_ms=behind_ms)
        if found is not None:
            self._prefetcher.note_answer(
                found, reply.prediction, reply.features, seen_by_edge=reply.tier == EDGE
            )

    def explain(self) -> Explanation | None:
        """The last decision, with what speaks for it; None before the first."""
        explanation = self._prefetcher.explain()
        if explanation is None:
            return None
        offload = tuple((f"offload to {tier}", why) for tier, why in self._offloading.why().items())
        cooperation = self.cooperation
        nearby = cooperation.state.facts() if cooperation is not None else ()
        return replace(explanation, facts=(*explanation.facts, *offload, *nearby))

    def close(self) -> None:
        """Stop prefetching; hand over to the devices nearby."""
        self._prefetcher.close()
        self._providers.close()


def _profile(settings: PrefetchSettings) -> DeviceProfile:
    profile = _measured_or_default(settings)
    return profile.only(settings.features) if settings.features else profile


def _measured_or_default(settings: PrefetchSettings) -> DeviceProfile:
    log = get_logger("device")
    if settings.profile is not None:
        profile = DeviceProfile.load(settings.profile)
        backend = settings.recognition.backend
        if any(one.backend != backend for one in profile.profiles):
            log.warning(
                "the device profile was measured with another classifier",
                profile=profile.profiles[0].backend,
                used=backend,
            )
        return profile
    log.info(
        "no device profile given: the built-in default, adjusted at run time, is used",
        advice="`nearsight profile DIR --device` measures this machine",
    )
    return default_device_profile(settings.recognition.backend)
