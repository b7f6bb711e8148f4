"""What the visitors' photos are like: how hard they are to recognise, how large, how long a look takes.

Measured photos are a sample (`photo_sample.py`), from which whole photos are drawn. Where there is none, in
the dissertation's world and in smoke runs, photos differ in recall and size alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nearsight.common.object_cache.profile import load_profile_file, save_profile_file
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import PhotoMaker, PhotoSource, SampledPhotos, TwinPhoto

PHOTOS_VERSION = 3
"""1 had no sample; in 2, efforts were over the polynomials of profiles."""
_PROFILED_AT = 16
_SECOND_LOOK = 0.995
_MUSEUM_BYTES = (27_000.0, 0.4)

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PhotoKind(BaseModel):
    """What the visitors' photos are like.

    Attributes
    ----------
    recall : tuple of (features, recall)
        At first look, the fewest features first; the last is what edges and clouds extract.
    second_look : float
        Recall of the cloud.
    median_bytes : float
        Size of a file.
    spread : float
        Standard deviation of the logarithm of sizes.
    sample : tuple of (weight, TwinPhoto)
        Measured photos, which are drawn as they are; empty: they follow from the numbers above.
    measured_over : str
        Over which costs the efforts in ``sample`` are; see `mark_of`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    version: int = PHOTOS_VERSION
    recall: tuple[tuple[int, float], ...]
    second_look: float
    median_bytes: float
    spread: float
    sample: tuple[tuple[Weight, TwinPhoto], ...] = ()
    measured_over: str = ""

    @classmethod
    def of(cls, costs: CostModel) -> Self:
        """As the profiles say; sizes and the second look are those of the generated museum."""
        found = [
            (profile.query_features, float(profile.curves(_PROFILED_AT).recall[-1]))
            for profile in costs.device.profiles
        ]
        rising = np.maximum.accumulate([value for _, value in found])
        recall = tuple((count, float(value)) for (count, _), value in zip(found, rising, strict=True))
        median_bytes, spread = _MUSEUM_BYTES
        return cls(
            recall=recall,
            second_look=max(_SECOND_LOOK, recall[-1][1]),
            median_bytes=median_bytes,
            spread=spread,
        )

    def source(self, rng: np.random.Generator) -> PhotoSource:
        """Draws such photos."""
        if self.sample:
            return SampledPhotos(self.sample, rng)
        return PhotoMaker(self.recall, self.second_look, (self.median_bytes, self.spread), rng)

    def save(self, path: Path) -> None:
        """Write the file, complete or not at all."""
        save_profile_file(self, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check; raises NotFound, CorruptStore."""
        advice = "run an experiment of chapter 6 on the twin: it measures them"
        return load_profile_file(cls, path, PHOTOS_VERSION, advice)
