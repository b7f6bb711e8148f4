"""Costs of a recognition cache on a device, for each number of features (dissertation, table 4.1).

`nearsight profile --device` measures them and writes a versioned JSON file; an application passes the file to
its recognizer. The content of the file is validated: see `CacheProfile`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from nearsight.common.errors import ConfigurationError
from nearsight.common.object_cache.profile import CacheProfile, VersionedFile
from nearsight.device.prefetching.decision import ExtractionCurves

MOST_FEATURE_COUNTS = 16


class DeviceProfile(VersionedFile):
    """One `CacheProfile` for each number of features, all measured on one machine."""

    file_advice = "measure a new one: nearsight profile DIR --device --out FILE"

    kind: Literal["device"] = "device"
    """"device": distinguishes the file from an edge's profile."""
    version: Literal[1] = 1
    """Version of the file format."""
    profiles: tuple[CacheProfile, ...] = Field(min_length=1, max_length=MOST_FEATURE_COUNTS)
    """Profiles by increasing number of features. f_D(k) is ``extraction_ms`` + ``lookup_ms``."""

    @model_validator(mode="after")
    def _numbers_of_features_rise(self) -> Self:
        counts = [profile.query_features for profile in self.profiles]
        if counts != sorted(set(counts)):
            raise ValueError(f"the numbers of features must be strictly increasing, got {counts}")
        return self

    @property
    def feature_counts(self) -> tuple[int, ...]:
        """The numbers of features to choose from, in increasing order."""
        return tuple(profile.query_features for profile in self.profiles)

    def curves(self, k_max: int) -> tuple[ExtractionCurves, ...]:
        """f_D(k) and recall_D(k) for each number of features."""
        return tuple(ExtractionCurves.of_profile(profile, k_max) for profile in self.profiles)

    def only(self, features: int) -> Self:
        """The profile restricted to one number of features, which is then always used.

        Raises
        ------
        ConfigurationError
            If this number was not measured.
        """
        found = tuple(profile for profile in self.profiles if profile.query_features == features)
        if not found:
            known = ", ".join(map(str, self.feature_counts))
            raise ConfigurationError(
                f"the device profile has no entry for {features} features",
                advice=f"choose one of {known}, or measure it: nearsight profile DIR --device --features",
            )
        return self.model_copy(update={"profiles": found})


# Rounded from `nearsight profile --device` on a generated museum of 120 objects, one core of a 2020s server:
# features, extraction [ms], f(k) without it and recall(k).
_DEFAULT_TABLE = (
    (200, 3.1, (1.3, 0.005), (0.88,)),
    (400, 3.4, (1.8, 0.06), (0.92,)),
    (600, 4.9, (2.4, 0.10), (0.955,)),
    (800, 5.7, (2.8, 0.13), (0.96,)),
)


def default_device_profile(backend: str = "auto") -> DeviceProfile:
    """The default where no profile was measured; reports name it as such.

    Absolute times are adapted to the machine at run time by the correction factor. The relation between the
    numbers of features is taken from this profile.
    """
    return DeviceProfile(
        profiles=tuple(
            CacheProfile(
                backend=backend,
                query_features=features,
                largest_k=40,
                lookup_ms=lookup_ms,
                recall=recall,
                extraction_ms=extraction_ms,
                dataset="built-in default, not measured here",
            )
            for features, extraction_ms, lookup_ms, recall in _DEFAULT_TABLE
        )
    )
