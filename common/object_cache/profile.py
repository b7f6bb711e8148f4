"""The cost of a recognition cache of k objects: a profile measured offline, corrected at run time.

`nearsight profile` measures f(k), recall(k) and precision(k) (dissertation, section 3.3.1) and writes a
versioned JSON file, which edge and device read. A profile is refused if it has another version or invalid
values, or if its lookup time is not positive or clearly decreases as the cache grows. The curves are then
made monotonic and bounded:

- f(k) never decreases: a small dip of the fit is flattened (running maximum);
- beyond the largest measured size, f grows with its mean slope over the upper half of the measured sizes, and
  recall and precision stay constant, because a polynomial is meaningless outside of its data;
- recall and precision are limited to [0, 1];
- f(0) = 0: an empty cache is skipped.

`LookupCorrection` adapts the profile to the machine at run time; `RollingMean` averages times measured there
(section 3.5.1.1).
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from nearsight.common.errors import ConfigurationError, CorruptStore, InvalidArgument, NotFound
from nearsight.common.files import write_atomically
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.settings import first_error

LARGEST_RECALL = 1.05
"""Maximum recall of a cache of one object: a fitted line may start above 1; curves are limited to 1."""
_LARGEST_DIP = 0.2
_LONGEST_FIT = 20_000

_WEIGHT = 0.05
"""Weight of the newest ratio of lookup times: the mean is over about 20 lookups."""
_MAX_JUMP = 8.0
_MAX_FAILED_SHARE = 0.05
_KEPT_FACTOR = 8.0
_INDIFFERENCE = 0.02
_LARGEST_INDIFFERENCE = 0.1

Coefficients = tuple[FiniteFloat, ...]
"""A polynomial in k, constant term first: (51.14, 1.87) is 51.14 + 1.87 k."""


class VersionedFile(BaseModel):
    """Measurements in a versioned JSON file, validated when the file is read.

    The field ``version`` of a subclass is the version of the format.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_advice: ClassVar[str]
    """Advice in errors: how to create a valid file."""

    def save(self, path: Path) -> None:
        """Write the file atomically.

        Raises
        ------
        ConfigurationError
            If the file cannot be written.
        """
        try:
            write_atomically(path, f"{self.model_dump_json(indent=2)}\n".encode())
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the profile {path}: {error.strerror}", advice="give another file with --out"
            ) from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and validate the file.

        Raises
        ------
        NotFound
            If there is no such file.
        CorruptStore
            If the file cannot be read, has another kind or version, or has invalid values.
        """
        advice = cls.file_advice
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise NotFound(f"there is no profile {path}", advice=advice) from error
        except OSError as error:
            raise CorruptStore(f"cannot read the profile {path}: {error.strerror}", advice=advice) from error
        except ValueError as error:  # bad UTF-8 or bad JSON
            raise CorruptStore(f"{path} is not a profile: invalid JSON", advice=advice) from error
        found = content.get("version") if isinstance(content, dict) else None
        version = cls.model_fields["version"].default
        if found != version:
            raise CorruptStore(
                f"{path} is not a profile of version {version} (its version is {found!r})", advice=advice
            )
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            why = f"the profile {path} is not valid: {first_error(error)}"
            raise CorruptStore(why, advice=advice) from error


class Measurement(BaseModel):
    """Measurements at one cache size: means over random subsets, and their standard deviations.

    Recall is None if no subset had a photo of its objects, precision if no photo was answered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    k: int = Field(ge=1)
    lookup_ms: FiniteFloat
    lookup_ms_std: FiniteFloat
    recall: FiniteFloat | None
    recall_std: FiniteFloat | None
    precision: FiniteFloat | None
    precision_std: FiniteFloat | None


class CacheProfile(VersionedFile):
    """Measured behaviour of a recognition cache of k objects on one machine."""

    file_advice = "measure a new one: nearsight profile DIR --out FILE"

    version: Literal[1] = 1
    """Version of the file format."""
    backend: str
    """Classifier that was measured."""
    query_features: int = Field(ge=1)
    """Features per query."""
    largest_k: int = Field(ge=1, le=10_000_000)
    """Largest cache size that was measured."""
    lookup_ms: Coefficients = Field(min_length=1, max_length=8)
    recall: Coefficients = Field(min_length=1, max_length=8)
    precision: Coefficients = Field(default=(1.0,), min_length=1, max_length=8)
    """Polynomials in k, constant term first; ``lookup_ms`` is f(k)."""
    extraction_ms: FiniteFloat = Field(default=0.0, ge=0)
    """Time to extract the features of one image [ms]; only requests with an image need it."""
    created: str = ""
    machine: str = ""
    dataset: str = ""
    """Time, machine and data set of the measurement."""
    measurements: tuple[Measurement, ...] = ()
    """The measured points from which the polynomials were fitted; may be empty."""

    @model_validator(mode="after")
    def _lookup_time_makes_sense(self) -> Self:
        sizes = np.unique(np.linspace(1, self.largest_k, min(self.largest_k, _LONGEST_FIT)))
        raw = np.polynomial.polynomial.polyval(sizes, self.lookup_ms)
        if not np.isfinite(raw).all() or raw.min() <= 0:
            raise ValueError("lookup_ms is not positive at every measured size")
        if (raw < (1 - _LARGEST_DIP) * np.maximum.accumulate(raw)).any():
            raise ValueError("lookup_ms decreases as the cache grows")
        if not 0 < np.polynomial.polynomial.polyval(1.0, self.recall) <= LARGEST_RECALL:
            raise ValueError("recall of a cache of one object is not in (0, 1]")
        return self

    def curves(self, k_max: int) -> ProfileCurves:
        """f, recall and precision for k = 0 … k_max, made safe as the module's docstring describes."""
        if k_max < 0:
            raise ConfigurationError(f"a cache cannot have {k_max} objects")
        sizes = np.arange(k_max + 1, dtype=np.float64)
        inside = np.minimum(sizes, self.largest_k)
        lookup: FloatArray = np.polynomial.polynomial.polyval(inside, self.lookup_ms).astype(np.float64)
        lookup[0] = 0.0
        lookup = np.maximum.accumulate(lookup)
        lookup += (sizes - inside) * self._slope_beyond()
        return ProfileCurves(lookup, _probability(self.recall, inside), _probability(self.precision, inside))

    def _slope_beyond(self) -> float:
        """Mean slope of f over the upper half of the measured sizes [ms per object]; not negative."""
        middle = max(1, self.largest_k // 2)
        if middle == self.largest_k:
            return max(0.0, self.lookup_ms[1]) if len(self.lookup_ms) > 1 else 0.0
        low, high = np.polynomial.polynomial.polyval(np.array([middle, self.largest_k]), self.lookup_ms)
        return max(0.0, float(high - low) / (self.largest_k - middle))


@dataclass(frozen=True, slots=True, eq=False)
class ProfileCurves:
    """A profile at every cache size k = 0 … K: three arrays of shape (K + 1,) float64."""

    lookup_ms: FloatArray
    recall: FloatArray
    precision: FloatArray


def default_profile(backend: str = "auto", query_features: int = 800) -> CacheProfile:
    """A profile for daemons without a measured one; they report that they use it.

    It has the order of magnitude of the default backend on one core of a 2020s server. Recall is as in the
    dissertation's Table 3.1.
    """
    return CacheProfile(
        backend=backend,
        query_features=query_features,
        largest_k=500,
        lookup_ms=(5.0, 0.02),
        recall=(0.9, -0.00014),
        precision=(0.98,),
        extraction_ms=8.0,
        dataset="built-in default, not measured",
    )


def _probability(coefficients: Coefficients, sizes: FloatArray) -> FloatArray:
    values: FloatArray = np.clip(np.polynomial.polynomial.polyval(sizes, coefficients), 0.0, 1.0)
    return values


class LookupCorrection:
    """Exponentially weighted mean of measured / predicted lookup times; 1 before the first measurement.

    The dissertation fits f(k) once. A busy or slower machine, or other images, change the actual times. One
    factor for the whole curve adapts to them. A single ratio is limited to between an eighth of the current
    factor and 8 times the factor, so that one paused thread does not look like a slow machine.

    An empty cache has no lookups to measure. If it was emptied because lookups were slow, the factor
    gradually returns to 1, until the optimizer tries a filled cache again. If lookups are still slow, the
    trial fails and the cache is emptied again. Two rules dampen this oscillation:

    - each failed trial doubles the number of requests until the next one. So failed trials take ever fewer of
      the requests, and the recovery of a machine is noticed after about as many requests as it was slow for;
    - each failed trial widens the range of expected latencies within which an empty and a filled cache count
      as equal, because there the noise of the measurements would decide.

    A cache that is kept for long was not a failed trial; it resets both.

    Parameters
    ----------
    factor : float
        Initial factor, such as the last one of an earlier run.

    Raises
    ------
    InvalidArgument
        If ``factor`` is not positive and finite.
    """

    def __init__(self, factor: float = 1.0) -> None:
        if not 0 < factor < math.inf:
            raise InvalidArgument(f"a factor must be positive and finite, got {factor}")
        self.factor = factor
        """Factor by which to multiply the profile's f(k)."""
        self._lookups = 0  # since the cache was last emptied
        self._empty = False
        self.half_life_requests = 0.0
        """Number of requests in which the factor returns halfway to 1; 0 until the cache is first emptied."""

    @property
    def indifference(self) -> float:
        """Minimum relative difference of expected latency that counts between a filled and an empty cache."""
        growth = self.half_life_requests * _WEIGHT  # 1 before the first failed trial
        return min(_LARGEST_INDIFFERENCE, _INDIFFERENCE * growth) if growth > 1 else 0.0

    @property
    def trial_rate(self) -> float:
        """1 before the first failed trial, halved by each one, at least 1/20; reset if a cache is kept."""
        return 1.0 / (_WEIGHT * self.half_life_requests) if self.half_life_requests else 1.0

    def relax(self, requests: int = 1) -> None:
        """Move the factor towards 1 because the cache is empty; ``requests`` arrived since the last call.

        The factor moves on a logarithmic scale: four times too slow is as far from 1 as four times too fast.
        """
        if not self._empty:
            self._set_half_life()
            self._empty = True
        self.factor **= 0.5 ** (requests / self.half_life_requests)

    def _set_half_life(self) -> None:
        """Set the half-life after the cache was emptied: longer than before, unless it was kept for long."""
        # A trial takes about as many lookups as the mean averages over. This is its cost, and also the
        # minimum half-life. The maximum half-life limits failed trials to 5 % of the requests.
        trial = 1.0 / _WEIGHT
        if self._lookups >= _KEPT_FACTOR * self.half_life_requests:
            self.half_life_requests = trial
        else:
            self.half_life_requests = min(2.0 * self.half_life_requests, trial / _MAX_FAILED_SHARE)
        self._lookups = 0

    def observe(self, measured_ms: float, predicted_ms: float) -> None:
        """Include one lookup in the mean; times that are not positive and finite are ignored."""
        if not (0 < measured_ms < math.inf and 0 < predicted_ms < math.inf):
            return
        ratio = measured_ms / predicted_ms
        ratio = min(max(ratio, self.factor / _MAX_JUMP), self.factor * _MAX_JUMP)
        self.factor += _WEIGHT * (ratio - self.factor)
        self._empty = False
        self._lookups += 1


class RollingMean:
    """Mean of the last ``window`` values.

    Parameters
    ----------
    window : int
        Number of values; 100 in the dissertation's system.
    seed : float
        The mean before the first measurement.
    full : bool
        Whether the window initially consists of seed values. If not, the first value replaces the seed.

    Raises
    ------
    InvalidArgument
        If ``window`` is below 1, or ``seed`` is negative or not finite.
    """

    def __init__(self, window: int, seed: float, *, full: bool = True) -> None:
        if window < 1 or not 0 <= seed < math.inf:
            raise InvalidArgument(
                f"a rolling mean needs a positive window and a seed of at least 0, got {window} and {seed}"
            )
        self.values = deque([seed] * window if full else (), maxlen=window)
        """The values in the window."""
        self._measured = 0
        self.mean = seed
        """Mean of the values in the window."""

    def observe(self, value: float) -> None:
        """Add a value; the oldest leaves a full window.

        Raises
        ------
        InvalidArgument
            If the value is negative or not finite.
        """
        if not 0 <= value < math.inf:
            raise InvalidArgument(f"expected a finite value that is not negative, got {value}")
        self.values.append(value)
        self._measured += 1
        # Recomputed, because a running sum drifts; adding a hundred values takes a microsecond.
        self.mean = math.fsum(self.values) / len(self.values)

    @property
    def assumed(self) -> str:
        """Note for display after the mean, if part of it is the seed; empty if all values were measured."""
        if not self._measured:
            return " (assumed)"
        in_window = len(self.values)
        return "" if self._measured >= in_window else f" ({self._measured} of {in_window} measured)"

    def refill(self, value: float) -> None:
        """Fill the window with the mean of an earlier run."""
        for _ in range(self.values.maxlen or 0):
            self.observe(value)
