"""The costs of the twin: computing times and overheads, from measurements of this machine.

Mean lookup times and their growth with the cache come from the measurements in profiles (`nearsight
profile`). Costs that no profile contains (the cloud's second look, the time of a message in a daemon, the
scatter of times) are fitted to one short run of the real daemons: see `fitting.py`. `paper_costs` gives the
costs of the dissertation.
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

_DRAWS = 4096
_LEAST_SIZES = 2
SECOND_LOOK_MS = 60.0
MISS_FACTORS = (1.0, 20.0)
"""Smallest and largest accepted `CostModel.miss_factor`."""
_MOST_CANDIDATES_OF = 132
"""Number of objects above which the number of candidates that a lookup without a result verifies no longer
grows. Measured with 800 features: 9 ms among 33 objects, 13 among 132, 12 among 400."""


class Scatter(BaseModel):
    """Distribution of times around the modelled time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Median of measured over modelled times."""
    ratios: tuple[float, ...] = Field(default=(0.8, 0.9, 0.95, 1.0, 1.05, 1.15, 1.4), min_length=1)
    """Quantiles of measured times over their median, equally spaced from the minimum to the maximum."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Cores and speed of the nodes."""

    cloud: int = 24
    edge: int = 8
    device: int = 4
    """Cores of each node (table 6.1)."""
    shared: int = 0
    """Number of cores of one machine on which all nodes run as processes; 0: each node has its own."""
    cloud_slowness: float = 1.0
    edge_slowness: float = 1.0
    device_slowness: float = 1.0
    """Factors on the computing times of the machine whose costs were measured. Edges and devices decide with
    profiles of their own speed."""
    pace: float = 1.0
    """Further factor on all nodes' times in this run, which their profiles do not include."""


class CostModel(VersionedFile):
    """All costs."""

    file_advice = "fit one: nearsight experiment run twin-validation"

    version: int = 2
    edge: CacheProfile
    """f(k) and extraction of an edge, and of the cloud at first look."""
    device: DeviceProfile
    """f_D(k) of devices."""
    edge_work: Scatter = Scatter()
    device_work: Scatter = Scatter()
    cloud_work: Scatter = Scatter()
    second_look: Scatter = Scatter()
    """Scatter of lookups per tier; `second_look`: of the cloud's times for photos unknown at first look."""
    miss_factor: float = Field(default=2.0, ge=MISS_FACTORS[0], le=MISS_FACTORS[1])
    """Factor on a lookup that finds nothing, for photos without a measured effort."""
    second_look_ms: float = Field(default=SECOND_LOOK_MS, ge=0, allow_inf_nan=False)
    """Cost of the second look, in addition to the first [ms]."""
    call_ms: float = Field(default=1.5, ge=0, allow_inf_nan=False)
    """Time from the request to the answer of a tier, without its computing and without the link [ms]."""
    connect_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Additional time of the first call over a connection, without the handshake on the link [ms]: sockets
    and threads are created, and caches are cold."""
    prepare_ms: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    """Time that a device spends on a photo that it sends [ms]."""
    hand_over_ms: float = Field(default=0.44, ge=0, allow_inf_nan=False)
    """Time that an application waits in addition to the lookup for a local hit [ms]: one thread takes the
    photo, another one calls back. Measured: 0.35 to 0.58 ms, median of the undisturbed values 0.44 ms."""
    small_ms: float = Field(default=0.4, ge=0, allow_inf_nan=False)
    """Computing time of a tier for a request without a photo [ms]."""
    together: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """Factor on the time for a photo that a tier starts while it computes on another one."""
    call_work: Scatter = Scatter(ratios=(1.0,))
    """Scatter of ``call_ms``; messages of busy daemons are sometimes late."""
    build_ms: tuple[tuple[int, float], ...] = ((4, 0.0), (10, 27.0), (40, 75.0), (132, 600.0), (400, 2100.0))
    """Time for building a snapshot by its size, as (models, ms). Interpolated linearly between the sizes,
    proportional beyond the last."""
    model_features: int = Field(default=1000, gt=0)
    """Features of one object model."""
    pace_ms: float = Field(default=0.0, ge=0)
    """Pace of the machine when these costs were fitted [ms]; see `rig.conditions`. 0: not known."""
    fitted_to: str = ""

    @classmethod
    def assumed(cls) -> Self:
        """Costs from the built-in profiles, without any measurement on this machine."""
        return cls(edge=default_profile(), device=default_device_profile(), fitted_to="nothing: built-in")


class Draws:
    """Draws times from a scatter; random numbers are generated in blocks."""

    def __init__(self, scatter: Scatter, rng: np.random.Generator) -> None:
        self._scale = scatter.scale
        self._ratios = np.asarray(scatter.ratios)
        self._rng = rng
        self._block: list[float] = []

    def of(self, modelled: float) -> float:
        """A random time around a modelled one, in the same unit."""
        if not self._block:
            places = np.linspace(0.0, 1.0, len(self._ratios))
            self._block = np.interp(self._rng.random(_DRAWS), places, self._ratios).tolist()
        return modelled * self._scale * self._block.pop()


class Costs:
    """The cost model with its random numbers, for one run. Times are those of the measured machine.

    Parameters
    ----------
    model : CostModel
        Typical times.
    objects : int
        Number of objects in the catalogue.
    rng : Generator
        Source of scatter.
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
        """A lookup among k objects at the edge [s]."""
        return self._edge_draws.of(self._tier_lookup_ms(k, effort, found=found)) / 1e3

    def _tier_lookup_ms(self, k: int, effort: Effort, *, found: bool) -> float:
        largest = len(self._edge_ms) - 1
        if found:
            return effort.found * self._edge_ms[min(k, largest)]
        return self._missed(effort) * self._edge_ms[min(k, _MOST_CANDIDATES_OF, largest)]

    def _missed(self, effort: Effort) -> float:
        return self.model.miss_factor if effort.missed is None else effort.missed

    def edge_extraction_s(self, effort: Effort = AS_ANY_PHOTO) -> float:
        """Extraction of features from a photo at the edge [s]."""
        return self._edge_draws.of(effort.extraction * self.model.edge.extraction_ms) / 1e3

    def device_lookup_s(self, k: int, features: int, *, found: bool, effort: Effort = AS_ANY_PHOTO) -> float:
        """Decoding, extraction and lookup among k objects on a device [s]."""
        curve, extraction_ms = self._device_ms[features], self._device_extraction_ms[features]
        usual_ms = curve[min(k, len(curve) - 1)]
        lookup_ms = (effort.found if found else self._missed(effort)) * usual_ms
        return self._device_draws.of(effort.extraction * extraction_ms + lookup_ms) / 1e3

    def device_extraction_s(self, effort: Effort = AS_ANY_PHOTO) -> float:
        """Extraction of all features from a photo on a device [s]."""
        usual_ms = self.model.device.profiles[-1].extraction_ms
        return self._device_draws.of(effort.extraction * usual_ms) / 1e3

    def cloud_s(
        self, *, image: bool, again: bool, effort: Effort = AS_ANY_PHOTO, second_effort: float = 1.0
    ) -> float:
        """A lookup in the whole catalogue [s]; ``again``: the photo was unknown at first look."""
        objects = len(self._edge_ms) - 1
        if not image:
            return self._cloud_draws.of(self._tier_lookup_ms(objects, effort, found=not again)) / 1e3
        if again:
            usual_ms = self._edge_ms[-1] + self.model.edge.extraction_ms + self.model.second_look_ms
            return self._second_draws.of(second_effort * usual_ms) / 1e3
        extraction_ms = effort.extraction * self.model.edge.extraction_ms
        return self._cloud_draws.of(effort.found * self._edge_ms[-1] + extraction_ms) / 1e3

    def build_s(self, models: int) -> float:
        """Building a snapshot of this number of models [s]."""
        beyond: float = max(1.0, models / self._build_sizes[-1])
        return beyond * float(np.interp(models, self._build_sizes, self._build_ms)) / 1e3

    def one_way_s(self, *slowness: float) -> float:
        """Half of a call's typical time without link and computing [s], scaled by the mean ``slowness``."""
        return self.model.call_ms / 2e3 * sum(slowness) / len(slowness)

    def call_stretch(self) -> float:
        """A random factor for both ways of one call, relative to the typical time."""
        return self._call_draws.of(1.0)

    def device_profile(self, slowness: float) -> DeviceProfile:
        """The initial profile of a device."""
        if slowness not in self._device_profiles:
            profiles = tuple(slowed(one, slowness) for one in self.model.device.profiles)
            self._device_profiles[slowness] = self.model.device.model_copy(update={"profiles": profiles})
        return self._device_profiles[slowness]

    @property
    def small_s(self) -> float:
        """Computing time of a request without a photo [s]."""
        return self.model.small_ms / 1e3


def lookups_ms(profile: CacheProfile, largest_k: int) -> FloatArray:
    """Lookup times among 0, 1, ... objects [ms]: as measured, made monotonic, with linear interpolation.

    The profile's polynomial is used only if there are fewer than two measurements. It must not decrease, so a
    cost that rises and then stays constant becomes one straight line. On one machine the polynomial gave 5.2
    ms among 132 objects and 9.8 among 400, where 8.6 and 7.8 were measured. Daemons decide with the
    polynomial, so the twin's decisions use it as well.

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
    """The profile of a machine that is slower by this factor."""
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
"""Number of features, and coefficients of f_D(k) [ms] and recall_D(k): table 4.1, rounded."""
_LARGEST_EDGE_K, _LARGEST_DEVICE_K = 500, 40
_MATCHING_MS = 1.0
"""Part of the constant term that counts as lookup, because a lookup time must be positive [ms]."""

PAPER_PHOTO_BYTES = (100_000.0, 0.4)
"""Median size [bytes] and spread of a photo with 640 pixels: Stanford's phone photos at JPEG quality 95."""

PAPER_HARDWARE = Hardware(cloud=2, edge=2, device=1, cloud_slowness=0.5)
"""Table 6.1, with cores counted in concurrent photos."""


def paper_costs() -> CostModel:
    """The costs of the dissertation: its own polynomials, on the machines of its table 6.1.

    With these costs the twin should reproduce the dissertation's table 6.4, which checks the twin. They also
    show which part of our results is caused by our faster classifier.

    f(k) and recall(k) of the edge are from tables 3.2 (LSH, Stanford) and 3.1, those of devices from table
    4.1. The constant term is the time of a lookup among no objects, so it counts as extraction. The rest is
    assumed:

    - A lookup of table 3.2 keeps the four cores of its machine busy, as OpenCV's matchers do. So the edge
      with 8 cores works on two photos at a time. Among 132 objects it sustains 2 / 0.298 s = 6.7 photos per
      second. This agrees with the measured system in table 6.4: up to 7 devices. A device works on one photo
      at a time.
    - The cloud's speed is derived from table 6.4. 600 ms for one device and 500 classes is half of f(500).
      The cloud is sufficient for 5 devices with 300 classes, but not with 500; this gives two photos at a
      time. These two bounds of only-cloud are therefore inputs, not targets; the values between them are
      targets.
    - A photo has about 100 kB. There is no second look, and a lookup that finds nothing takes no longer.
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
