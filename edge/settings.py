"""Settings of the edge daemon."""

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
    """Prediction of the next objects: the Markov model of the devices (dissertation, section 4.3)."""

    order: int = Field(default=1, ge=0, le=3)
    """Number of last objects that predict the next one; 0 is popularity alone."""
    prior: float = Field(default=5.0, gt=0, lt=math.inf)
    """Weight, in transitions, of the prediction of the next lower order after each object."""
    half_life_s: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """Seconds in which a transition loses half of its weight; inf for no decay, as rooms seldom change."""
    devices_max: int = Field(default=10_000, ge=1, le=1_000_000)
    """Maximum number of devices with a history; the longest inactive device is removed first."""
    pause_s: float = Field(default=1800.0, gt=0, allow_inf_nan=True)
    """A device that was inactive for this time starts a new visit."""
    top: int = Field(default=32, ge=1, le=4096)
    """Number of objects that are predicted with each answer."""


class CacheSettings(SettingsGroup):
    """The adaptive recognition cache of one catalogue (dissertation, chapter 3)."""

    policy: Policy = "adaptive"
    """Content of the cache: objects that pay off (adaptive), none, the fixed_size objects with the most (lfu)
    or the latest (lru) requests, or everything. All policies except adaptive are for comparison."""
    fixed_size: int = Field(default=50, ge=1, le=1_000_000)
    """Number of objects in the cache with policy lfu or lru."""
    k_max: int = Field(default=10_000, ge=0, le=1_000_000)
    """Maximum number of objects in the cache; 0: no cache of objects."""
    profile: UserPath | None = None
    """Profile of this machine, from `nearsight profile`. Without it the edge measures a quick profile."""
    optimize_every: int = Field(default=10, ge=1)
    """Requests between two decisions about the cache; a missed object leads to a decision at once."""
    prior: float = Field(default=1.0, gt=0, lt=math.inf)
    """Dirichlet prior of each object of the catalogue, in requests; 1 as in the dissertation."""
    prior_mass: float = Field(default=100.0, gt=0, allow_inf_nan=True)
    """Maximum of the sum of all priors, in requests; inf as in the dissertation. With one request per object,
    a catalogue of 500 objects needs hundreds of requests until its cache pays off."""
    half_life_s: float = Field(default=3600.0, gt=0, allow_inf_nan=True)
    """Seconds in which the count of a request loses half of its weight; inf for no decay."""
    miss_prior_ms: float = Field(default=100.0, ge=0, lt=math.inf)
    """Assumed round trip to the cloud until the first miss is measured."""
    miss_window: int = Field(default=10, ge=1, le=10_000)
    """Number of recent misses in the mean."""
    least_gain: float = Field(default=0.01, ge=0, le=1)
    """Minimum saving of a change, as a share of the expected latency, unless an object is newly popular."""
    build_share: float = Field(default=0.2, gt=0, le=1)
    """Maximum share of one core's time for building new snapshots."""
    library_mb: int = Field(default=128, ge=0, le=65_536)
    """Maximum of spare models in MiB. They are not in the cache, but kept for devices and for later."""
    regret_window: int = Field(default=1000, ge=1, le=100_000)
    """Number of recent requests in the regret of the chosen sizes."""
    markov: TransitionSettings = TransitionSettings()
    """Predictions for devices."""


class PrefetchSettings(SettingsGroup):
    """Prefetching the probable next objects of present devices into the cache while the edge is idle."""

    objects: int = Field(default=8, ge=0, le=1000)
    """Maximum number of prefetched objects in the cache of one catalogue; 0 for none. Only with cache.policy
    adaptive."""
    every_s: float = Field(default=1.0, gt=0, le=3600)
    """Seconds between two predictions."""
    idle_s: float = Field(default=0.5, ge=0, le=3600)
    """Seconds without a request after which the edge counts as idle."""
    present_s: float = Field(default=300.0, gt=0)
    """A device is present if it was active in this number of seconds."""
    devices: int = Field(default=200, ge=1, le=10_000)
    """Maximum number of devices in a prediction, the most recently active ones."""


class LoadSettings(SettingsGroup):
    """Many users at once (dissertation, section 3.5.1)."""

    window: int = Field(default=100, ge=1, le=10_000)
    """Number of recent requests in the means of times."""
    share: float = Field(default=0.9, gt=0, le=1)
    """Share of the edge's time that recognition may use; with 1 a queue grows without bound."""
    interarrival_seed_ms: float = Field(default=200.0, gt=0, lt=math.inf)
    """Initial value of all times between requests in the window."""
    compute_seed_ms: float = Field(default=50.0, gt=0, lt=math.inf)
    """Initial value of all compute times of requests in the window."""
    seed: int = Field(default=1, ge=0)
    """Seed of the random numbers that choose between edge and cloud."""


class FetchSettings(SettingsGroup):
    """Fetching object models from the cloud, in the background."""

    batch: int = Field(default=8, ge=1, le=1000)
    """Models per request."""
    parallel: int = Field(default=2, ge=1, le=16)
    """Number of requests in flight, and one more for objects that failed before."""
    timeout_s: float = Field(default=20.0, gt=0, le=600)
    """Timeout of one request."""
    patience_s: float = Field(default=0.5, ge=0, le=60)
    """Maximum time that available models, in an answer to a device, wait for other models."""


class EdgeSettings(RpcDaemonSettings):
    """Settings of the edge daemon."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "cloud": (DEFAULT_ENDPOINTS["cloud"], "Endpoint of the cloud."),
            "state": ("edge.db", "File for the learnt state."),
            "memory_mb": (2048, "Memory for recognition caches and networks, in MB."),
            "server.listen": (DEFAULT_ENDPOINTS["edge"], "Endpoint for devices. Other machines need keys."),
        }
    )
    server: ServerSettings = ServerSettings(listen=DEFAULT_ENDPOINTS["edge"])
    """Server for devices."""
    cloud: str = ""
    """Endpoint of the cloud, tcp://host:port."""
    cloud_public_key: str = ""
    """Public key of the cloud, or a file with it; needed if the cloud uses encryption."""
    client_id: str = Field(default="edge", min_length=1, max_length=100)
    """Name of this edge in its own requests to the cloud; forwarded ones have the device's name."""
    forward: Forward = "auto"
    """Input that the cloud receives on a miss: features, image, or (auto) the one with the lower expected
    latency, from measured bandwidth, sizes and compute times. The image follows if features are unknown."""
    poll_s: float = Field(default=10.0, gt=0, le=3600)
    """Interval of polling the cloud's catalogues for objects that were removed or replaced."""
    state: UserPath | None = None
    """File for the learnt state, such as edge.db. Without it, the state is lost on a restart."""
    state_every_s: float = Field(default=2.0, gt=0, le=3600)
    """Interval between two writes to it: the maximum that is lost when the edge is killed."""
    catalogues_max: int = Field(default=16, ge=1, le=1000)
    """Maximum number of catalogues with a cache; the least recently used cache is removed first."""
    memory_mb: int = Field(default=2048, ge=0, le=10_000_000)
    """Memory for all networks and recognition caches together, in MB, divided by the time that they save.
    models.memory_mb and cache.k_max remain limits of each part; with 0 there are only these limits."""
    standby_mb: int = Field(default=256, ge=0, le=10_000_000)
    """Memory for the standby, in MB: objects that the edge recognises during an outage of the cloud, 0.2 MB
    each. It is a part of memory_mb, at most half of it unless that is 0; 0: no standby."""
    recognition: RecognitionSettings = RecognitionSettings()
    """Recognition; must be the same as in the cloud, or recall differs."""
    cache: CacheSettings = CacheSettings()
    """The adaptive cache."""
    result_cache: ResultCacheSettings = ResultCacheSettings()
    """Cache of answers, in front of the adaptive cache."""
    fetch: FetchSettings = FetchSettings()
    """Model fetching."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """Prefetching while idle."""
    models: ModelSettings = ModelSettings(folder=Path("edge-models"))
    """Neural networks, from the cloud."""
    multi_user: MultiUser = "none"
    """Measure against queues at the edge: none, a cache that is small enough for the request rate (bounded),
    or passing on the requests that exceed the capacity (load-balanced)."""
    load: LoadSettings = LoadSettings()
    """Measurement of the load."""

    def next_tiers(self) -> tuple[NextTier, ...]:
        """The cloud, if it is set."""
        return (NextTier("cloud", self.cloud, self.cloud_public_key),) if self.cloud else ()
