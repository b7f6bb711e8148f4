"""What everything costs in the twin: computing times, sizes and overheads, from measurements of this machine.

Means of lookups come from the measurements in profiles (`nearsight profile`), which say how they grow with
the cache. What no profile knows (the cloud's second look, the way of a message through a daemon, how times
scatter) is fitted to one short run of the real daemons: see `fitting.py`. `paper_costs` gives those of the
dissertation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.object_cache.profile import CacheProfile, VersionedFile, default_profile
from nearsight.device.prefetching.device_profile import DeviceProfile, default_device_profile
from nearsight.experiments.twin.photos import AS_ANY_PHOTO, Effort

COSTS_VERSION = 2
ANSWER_BYTES = 230
BYTES_PER_PREDICTION = 20
REQUEST_BYTES = 200
MODEL_OVERHEAD_BYTES = 300
LISTED_BYTES = 60
_DRAWS = 4096
_LEAST_SIZES = 2
SECOND_LOOK_MS = 60.0
MISS_FACTORS = (1.0, 20.0)
"""Least and most that is believed."""
_MOST_CANDIDATES_OF = 132
"""Of more objects, lookups that find nothing verify no more candidates. Measured with 800 features: 9 ms
among 33 objects, 13 among 132, 12 among 400."""


class Scatter(BaseModel):
    """How times scatter around what the model says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Median of measured over modelled times."""
    ratios: tuple[float, ...] = Field(default=(0.8, 0.9, 0.95, 1.0, 1.05, 1.15, 1.4), min_length=1)
    """Quantiles of measured times over their median, at equal distances from the least to the largest."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Cores."""

    cloud: int = 24
    edge: int = 8
    device: int = 4
    """Of each node (table 6.1)."""
    shared: int = 0
    """All nodes are processes of one machine with so many cores; 0: each has its own."""
    cloud_slowness: float = 1.0
    edge_slowness: float = 1.0
    device_slowness: float = 1.0
    """How many times longer the nodes compute than the machine whose costs were measured. Edges and devices
    decide by profiles of their own speed."""
    pace: float = 1.0
    """How many times longer all of them take at the moment than their profiles say."""


class CostModel(VersionedFile):
    """All costs."""

    file_version = COSTS_VERSION
    file_advice = "fit one: nearsight experiment run twin-validation"

    version: int = COSTS_VERSION
    edge: CacheProfile
    """f(k) and the extraction of an edge, and of a cloud that looks a first time."""
    device: DeviceProfile
    """f_D(k) of devices."""
    edge_work: Scatter = Scatter()
    device_work: Scatter = Scatter()
    cloud_work: Scatter = Scatter()
    second_look: Scatter = Scatter()
    """Of lookups per tier; second_look of the cloud's times for photos that it does not know at once."""
    miss_factor: float = Field(default=2.0, ge=MISS_FACTORS[0], le=MISS_FACTORS[1])
    """How much longer a lookup takes that finds nothing, of photos whose own effort is not known."""
    second_look_ms: float = Field(default=SECOND_LOOK_MS, ge=0, allow_inf_nan=False)
    """What the second look costs on top of the first."""
    call_ms: float = Field(default=1.5, ge=0, allow_inf_nan=False)
    """From the question to the answer of a tier, without its computing and without the link."""
    connect_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """What the first call over a connection takes longer, besides the handshake on the link: sockets and
    threads are made, and caches are cold."""
    prepare_ms: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    """What a device spends on a photo that it sends."""
    hand_over_ms: float = Field(default=0.44, ge=0, allow_inf_nan=False)
    """What an application waits for besides the lookup, where the device answers itself: a thread takes the
    photo up, another one calls back. Measured: 0.35 to 0.58 ms, median of the undisturbed 0.44 ms."""
    small_ms: float = Field(default=0.4, ge=0, allow_inf_nan=False)
    """Computing time of a tier for a request without a photo."""
    together: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """How much longer a tier takes over a photo that it takes up while it computes on another one."""
    call_work: Scatter = Scatter(ratios=(1.0,))
    """Of ``call_ms``: messages of busy daemons are late now and then."""
    build_ms: tuple[tuple[int, float], ...] = ((4, 0.0), (10, 27.0), (40, 75.0), (132, 600.0), (400, 2100.0))
    """(models, ms): building a snapshot, by its size; between the sizes on a straight line, beyond
    the last in proportion."""
    model_features: int = Field(default=1000, gt=0)
    """Features of one object model."""
    pace_ms: float = Field(default=0.0, ge=0)
    """Of the machine when these costs were fitted; see `testbed.conditions`. 0: not known."""
    fitted_to: str = ""

    @classmethod
    def assumed(cls) -> Self:
        """From the built-in profiles: nothing is measured here."""
        return cls(edge=default_profile(), device=default_device_profile(), fitted_to="nothing: built-in")


class Draws:
    """Times drawn around their model; a block of random numbers at a time."""

    def __init__(self, scatter: Scatter, rng: np.random.Generator) -> None:
        self._scale = scatter.scale
        self._ratios = np.asarray(scatter.ratios)
        self._rng = rng
        self._block: list[float] = []

    def of(self, modelled: float) -> float:
        """A time, in the unit of the modelled one."""
        if not self._block:
            places = np.linspace(0.0, 1.0, len(self._ratios))
            self._block = np.interp(self._rng.random(_DRAWS), places, self._ratios).tolist()
        return modelled * self._scale * self._block.pop()


class Costs:
    """The cost model with its random numbers, for one run. Times are those of the machine that was measured.

    Parameters
    ----------
    model : CostModel
        Typical times.
    objects : int
        In the catalogue.
    rng : Generator
        Scatter.
    """

    def __init__(self, model: CostModel, objects: int, rng: np.random.Generator) -> None:
        self.model = model
        self._device_profiles: dict[float, DeviceProfile] = {}
        self._edge_ms: list[float] = lookups_ms(model.edge, objects).tolist()
        largest = max(one.largest_k for one in model.device.profiles)
        self._device_ms: dict[int, list[float]] = {
            one.query_features: lookups_ms(one, max(64, largest)).tolist() for one in model.device.profiles
        }
        self._device_extraction_ms = {one.query_features: one.extraction_ms for one in model.device.profiles}
        self._edge_draws = Draws(model.edge_work, rng)
        self._device_draws = Draws(model.device_work, rng)
        self._cloud_draws = Draws(model.cloud_work, rng)
        self._second_draws = Draws(model.second_look, rng)
        self._call_draws = Draws(model.call_work, rng)
        self._build_sizes, self._build_ms = zip(*model.build_ms, strict=True)

    def edge_lookup_s(self, k: int, *, found: bool, effort: Effort = AS_ANY_PHOTO) -> float:
        """A lookup among k objects at the edge."""
        return self._edge_draws.of(self._tier_lookup_ms(k, effort, found=found)) / 1e3

    def _tier_lookup_ms(self, k: int, effort: Effort, *, found: bool) -> float:
        largest = len(self._edge_ms) - 1
        if found:
            return effort.found * self._edge_ms[min(k, largest)]
        return self._missed(effort) * self._edge_ms[min(k, _MOST_CANDIDATES_OF, largest)]

    def _missed(self, effort: Effort) -> float:
        return self.model.miss_factor if effort.missed is None else effort.missed

    def edge_extraction_s(self, effort: Effort = AS_ANY_PHOTO) -> float:
        """Features out of a photo at the edge."""
        return self._edge_draws.of(effort.extraction * self.model.edge.extraction_ms) / 1e3

    def device_lookup_s(self, k: int, features: int, *, found: bool, effort: Effort = AS_ANY_PHOTO) -> float:
        """Decoding, extraction and lookup among k objects on a device."""
        curve, extraction_ms = self._device_ms[features], self._device_extraction_ms[features]
        usual_ms = curve[min(k, len(curve) - 1)]
        lookup_ms = (effort.found if found else self._missed(effort)) * usual_ms
        return self._device_draws.of(effort.extraction * extraction_ms + lookup_ms) / 1e3

    def device_extraction_s(self, effort: Effort = AS_ANY_PHOTO) -> float:
        """All features out of a photo on a device."""
        usual_ms = self.model.device.profiles[-1].extraction_ms
        return self._device_draws.of(effort.extraction * usual_ms) / 1e3

    def cloud_s(
        self, *, image: bool, again: bool, effort: Effort = AS_ANY_PHOTO, second_effort: float = 1.0
    ) -> float:
        """A lookup in the whole catalogue; ``again``: the photo was unknown at first look."""
        objects = len(self._edge_ms) - 1
        if not image:
            return self._cloud_draws.of(self._tier_lookup_ms(objects, effort, found=not again)) / 1e3
        if again:
            usual_ms = self._edge_ms[-1] + self.model.edge.extraction_ms + self.model.second_look_ms
            return self._second_draws.of(second_effort * usual_ms) / 1e3
        extraction_ms = effort.extraction * self.model.edge.extraction_ms
        return self._cloud_draws.of(effort.found * self._edge_ms[-1] + extraction_ms) / 1e3

    def build_s(self, models: int) -> float:
        """A snapshot of so many models."""
        beyond: float = max(1.0, models / self._build_sizes[-1])
        return beyond * float(np.interp(models, self._build_sizes, self._build_ms)) / 1e3

    def one_way_s(self, *slowness: float) -> float:
        """Half of what a call typically costs besides link and computing; machines are so slow."""
        return self.model.call_ms / 2e3 * sum(slowness) / len(slowness)

    @property
    def connect_s(self) -> float:
        """What the first call over a connection takes longer."""
        return self.model.connect_ms / 1e3

    def call_stretch(self) -> float:
        """How much longer than typically both ways of a call take this time."""
        return self._call_draws.of(1.0)

    def edge_profile(self, slowness: float) -> CacheProfile:
        """What an edge believes of itself at first."""
        return slowed(self.model.edge, slowness)

    def device_profile(self, slowness: float) -> DeviceProfile:
        """What a device believes of itself at first."""
        if slowness not in self._device_profiles:
            profiles = tuple(slowed(one, slowness) for one in self.model.device.profiles)
            self._device_profiles[slowness] = self.model.device.model_copy(update={"profiles": profiles})
        return self._device_profiles[slowness]

    @property
    def small_s(self) -> float:
        """Work on a request without a photo."""
        return self.model.small_ms / 1e3


def lookups_ms(profile: CacheProfile, largest_k: int) -> FloatArray:
    """What lookups among 0, 1, ... objects take: as measured, never less among more, straight in between.

    Not by the profile's polynomial: it must not fall, so of a cost that rises and then stays only a straight
    line is left. On one machine that said 5.2 ms among 132 objects and 9.8 among 400 where 8.6 and 7.8 were
    measured. Daemons decide by the polynomial, so the twin's do, too.

    Returns
    -------
    ndarray, shape (largest_k + 1,), float64
    """
    if len(profile.measurements) < _LEAST_SIZES:
        return profile.curves(largest_k).lookup_ms
    measured = sorted((one.k, one.lookup_ms) for one in profile.measurements)
    k, times_ms = np.array(measured, dtype=np.float64).T
    rising_ms = (np.maximum.accumulate(times_ms) + np.minimum.accumulate(times_ms[::-1])[::-1]) / 2
    sizes = np.arange(largest_k + 1, dtype=np.float64)
    slope = (rising_ms[-1] - rising_ms[-2]) / (k[-1] - k[-2])
    found: FloatArray = np.interp(sizes, k, rising_ms) + slope * np.maximum(0.0, sizes - k[-1])
    found[0] = 0.0
    return found


def slowed(profile: CacheProfile, slowness: float) -> CacheProfile:
    """The profile of a machine that is so many times slower."""
    if slowness == 1.0:
        return profile
    return profile.model_copy(
        update={
            "lookup_ms": tuple(slowness * coefficient for coefficient in profile.lookup_ms),
            "extraction_ms": slowness * profile.extraction_ms,
            "measurements": (),
        }
    )


_PAPER = "Cachier dissertation"
_PAPER_EDGE_MS = (51.14, 1.87)
_PAPER_EDGE_RECALL = (0.90, -0.00014)
_PAPER_DEVICE = (
    (200, (170.0, 0.70), (0.81, -0.0062)),
    (400, (221.0, 1.13), (0.87, -0.0032)),
    (600, (265.0, 1.74), (0.88, -0.0012)),
    (800, (311.0, 2.05), (0.87, -0.0015)),
)
_LARGEST_EDGE_K, _LARGEST_DEVICE_K = 500, 40
_MATCHING_MS = 1.0
"""Of the constant term: a lookup cannot take nothing."""

PAPER_PHOTO_BYTES = (100_000.0, 0.4)
"""Median and spread of a photo with 640 pixels: what Stanford's phone photos have at JPEG quality 95."""

PAPER_HARDWARE = Hardware(cloud=2, edge=2, device=1, cloud_slowness=0.5)
"""Table 6.1, in photos at a time."""


def paper_costs() -> CostModel:
    """What everything cost in the dissertation: its own polynomials, on the machines of its table 6.1.

    With them the twin should show the dissertation's own table 6.4, so that is a check of the twin. They also
    tell what in our figures is due to a classifier that is faster than theirs.

    f(k) and recall(k) of the edge are those of tables 3.2 (LSH, Stanford) and 3.1, of devices those of table
    4.1. The constant term counts as extraction: it is what a lookup among nothing takes. The rest is assumed:

    - A lookup of table 3.2 keeps the four cores of its machine busy, as OpenCV's matchers do. So the edge
      with 8 cores works on two photos at a time. Among 132 objects it keeps up with 2 / 0.298 s = 6.7 photos
      per second. Table 6.4 says the same of the measured system: up to 7 devices. A device works on one photo
      at a time.
    - The cloud's speed is taken from table 6.4: 600 ms for one device and 500 classes is half of f(500); that
      it does not suffice for 5 devices with 500 classes, but with 300, is two photos at a time. So these two
      bounds of only-cloud check nothing, and are no targets; the values between them do.
    - A photo has about 100 kB. Nothing is looked at twice, and a lookup that finds nothing takes no longer.
    """
    return CostModel(
        edge=_paper_profile(800, _LARGEST_EDGE_K, _PAPER_EDGE_MS, _PAPER_EDGE_RECALL),
        device=DeviceProfile(
            profiles=tuple(
                _paper_profile(features, _LARGEST_DEVICE_K, time_ms, recall)
                for features, time_ms, recall in _PAPER_DEVICE
            )
        ),
        miss_factor=1.0,
        second_look_ms=0.0,
        fitted_to=_PAPER,
    )


def _paper_profile(
    features: int, largest_k: int, time_ms: tuple[float, float], recall: tuple[float, float]
) -> CacheProfile:
    constant_ms, slope_ms = time_ms
    return CacheProfile(
        backend="flann-lsh",
        query_features=features,
        largest_k=largest_k,
        lookup_ms=(_MATCHING_MS, slope_ms),
        recall=recall,
        extraction_ms=constant_ms - _MATCHING_MS,
        dataset=_PAPER,
    )
