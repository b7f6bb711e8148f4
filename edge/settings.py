"""What a person can set about the edge daemon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import Field

from nearsight.common.config.base import NextTier, RpcDaemonSettings, UserPath
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.server import ServerSettings
from nearsight.common.settings import SettingsGroup

Forward = Literal["auto", "features", "image"]
MultiUser = Literal["none", "bounded", "load-balanced"]
Policy = Literal["adaptive", "none", "lfu", "lru", "everything"]


class TransitionSettings(SettingsGroup):
    """What is asked for next: the Markov model of the devices (dissertation, section 4.3)."""

    order: int = Field(default=1, ge=0, le=3)
    """Objects that predict the next one; 0 is popularity alone."""
    prior: float = Field(default=5.0, gt=0, lt=math.inf)
    """Weight, in transitions, of what the next lower order predicts after each object."""
    half_life_s: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """Seconds in which a transition loses half of its weight; inf never forgets, as walls seldom move."""
    devices_max: int = Field(default=10_000, ge=1, le=1_000_000)
    """Devices whose last objects are remembered; the one silent for longest makes room."""
    pause_s: float = Field(default=1800.0, gt=0, allow_inf_nan=True)
    """A device that was silent for so long begins a new visit."""
    top: int = Field(default=32, ge=1, le=4096)
    """Objects that are predicted with each answer."""


class CacheSettings(SettingsGroup):
    """The adaptive recognition cache of one catalogue (dissertation, chapter 3)."""

    policy: Policy = "adaptive"
    """What the cache holds: what pays (adaptive), nothing, the fixed_size objects asked for most often (lfu)
    or last (lru), or everything. All but adaptive are there to compare with."""
    fixed_size: int = Field(default=50, ge=1, le=1_000_000)
    """Objects in the cache with policy lfu or lru."""
    k_max: int = Field(default=10_000, ge=0, le=1_000_000)
    """Most objects that the cache may hold; 0 forwards everything to the cloud."""
    profile: UserPath | None = None
    """Profile of this machine, from `nearsight profile`. Without it the edge measures a quick one."""
    optimize_every: int = Field(default=10, ge=1)
    """Requests between two decisions about the cache; a missed object leads to one at once."""
    prior: float = Field(default=1.0, gt=0)
    """Dirichlet prior of each object of the catalogue, in requests; 1 as in the dissertation."""
    prior_mass: float = Field(default=100.0, gt=0, allow_inf_nan=True)
    """Most requests that the priors of all objects together stand for; inf as in the dissertation. With one
    per object, a catalogue of 500 takes hundreds of requests before its cache pays."""
    half_life_s: float = Field(default=3600.0, gt=0, allow_inf_nan=True)
    """Seconds in which the count of a request loses half of its weight; inf never forgets."""
    miss_prior_ms: float = Field(default=100.0, ge=0, lt=math.inf)
    """Assumed round trip to the cloud until the first miss has been measured."""
    miss_window: int = Field(default=10, ge=1, le=10_000)
    """How many of the last misses are averaged."""
    least_gain: float = Field(default=0.01, ge=0, le=1)
    """Share of the expected latency that a change must save, unless an object is newly popular."""
    build_share: float = Field(default=0.2, gt=0, le=1)
    """Most of one core's time that goes into building new snapshots."""
    library_mb: int = Field(default=128, ge=0, le=65_536)
    """Most MiB of models that are here for devices and for later, though they answer nothing now."""
    regret_window: int = Field(default=1000, ge=1, le=100_000)
    """Requests over which the regret of the chosen sizes is reported."""
    markov: TransitionSettings = TransitionSettings()
    """Predictions for devices."""


class PrefetchSettings(SettingsGroup):
    """Fetching what present devices may look at next into the cache while nobody asks."""

    objects: int = Field(default=8, ge=0, le=1000)
    """Most prefetched objects in the cache of one catalogue; 0 for none."""
    every_s: float = Field(default=1.0, gt=0, le=3600)
    """Seconds between two looks at what may come."""
    idle_s: float = Field(default=0.5, ge=0, le=3600)
    """Seconds without a request after which the edge counts as idle."""
    present_s: float = Field(default=300.0, gt=0)
    """A device that was heard of in the last so many seconds is present."""
    devices: int = Field(default=200, ge=1, le=10_000)
    """Most devices that are looked at, the latest ones."""


class LoadSettings(SettingsGroup):
    """Many users at once (dissertation, section 3.5.1)."""

    window: int = Field(default=100, ge=1, le=10_000)
    """Requests over which times are averaged."""
    share: float = Field(default=0.9, gt=0, le=1)
    """Part of the edge's time that recognition may take; 1 lets a queue grow without bound."""
    interarrival_seed_ms: float = Field(default=200.0, gt=0)
    """Assumed time between requests until some came."""
    compute_seed_ms: float = Field(default=50.0, gt=0)
    """Assumed work for a request until some were worked on."""
    seed: int = Field(default=1, ge=0)
    """Of the random numbers that choose between edge and cloud."""


class FetchSettings(SettingsGroup):
    """Fetching object models from the cloud, in the background."""

    batch: int = Field(default=8, ge=1, le=1000)
    """Models per request."""
    parallel: int = Field(default=2, ge=1, le=16)
    """Requests in flight, besides one for an object that failed before."""
    timeout_s: float = Field(default=20.0, gt=0, le=600)
    """Longest wait for one request."""
    patience_s: float = Field(default=0.5, ge=0, le=60)
    """How long models that are here wait, in an answer to a device, for others that are on their way."""


class EdgeSettings(RpcDaemonSettings):
    """Settings of the edge daemon."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "cloud": (DEFAULT_ENDPOINTS["cloud"], "Where the cloud listens."),
            "state": ("edge.db", "Keeps what the edge learnt over restarts."),
            "memory_mb": (2048, "Most MB for recognition caches and networks."),
            "server.listen": (DEFAULT_ENDPOINTS["edge"], "Where devices ask. Other machines need keys."),
        }
    )
    server: ServerSettings = ServerSettings(listen=DEFAULT_ENDPOINTS["edge"])
    """Where devices are served."""
    cloud: str = ""
    """Endpoint of the cloud, tcp://host:port."""
    cloud_public_key: str = ""
    """Public key of the cloud, or a file that holds it; needed if the cloud uses encryption."""
    client_id: str = Field(default="edge", min_length=1, max_length=100)
    """How this edge calls itself to the cloud."""
    forward: Forward = "auto"
    """What the cloud gets on a miss: the features, the image, or whichever is expected to be answered sooner
    (measured: bandwidth, sizes, computing times)."""
    poll_s: float = Field(default=10.0, gt=0, le=3600)
    """Seconds between two looks at the cloud's catalogues, for objects that were removed or replaced."""
    state: UserPath | None = None
    """File that keeps what was learnt over restarts, such as edge.db. Without it a restart begins anew."""
    state_every_s: float = Field(default=2.0, gt=0, le=3600)
    """Seconds between two writes to it: what a killed edge forgets at most."""
    catalogues_max: int = Field(default=16, ge=1, le=1000)
    """Catalogues with a cache at the same time; the one unused for longest makes room."""
    memory_mb: int = Field(default=2048, ge=0, le=10_000_000)
    """MB of memory for all networks and all recognition caches together, divided by the time that they save.
    models.memory_mb and cache.k_max stay the most for either; 0: only these count."""
    standby_mb: int = Field(default=256, ge=0, le=10_000_000)
    """MB of memory for the standby: objects that the edge answers for while the cloud is away, 0.2 MB each.
    A part of memory_mb, at most half of it; 0: no standby."""
    recognition: RecognitionSettings = RecognitionSettings()
    """The recognition pipeline; as in the cloud, or recall differs."""
    cache: CacheSettings = CacheSettings()
    """The adaptive cache."""
    result_cache: ResultCacheSettings = ResultCacheSettings()
    """Answers that are used again, before the adaptive cache."""
    fetch: FetchSettings = FetchSettings()
    """Model fetching."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """Prefetching while idle."""
    models: ModelSettings = ModelSettings(folder=Path("edge-models"))
    """Neural networks, which come from the cloud."""
    multi_user: MultiUser = "none"
    """What is done against queues at the edge: nothing, a cache so small that lookups keep up with the
    requests (bounded), or passing on at once what would queue up (load-balanced)."""
    load: LoadSettings = LoadSettings()
    """How load is measured."""

    def next_tiers(self) -> tuple[NextTier, ...]:
        """The cloud."""
        return (NextTier("cloud", self.cloud, self.cloud_public_key),) if self.cloud else ()
