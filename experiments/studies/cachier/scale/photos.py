"""The visitors' photos: recognition difficulty, size, and duration of lookups.

Measured photos form a sample from which whole photos are drawn. Without a sample, that is with the
dissertation's costs and in smoke runs, photos differ only in recall and size.

The sample is measured on the photos of a museum. Each photo is looked up once among all objects, which is
enough to determine recall. The duration of lookups is measured several times, among the objects that an edge
and its devices would hold, with photos of one exhibition. Some photos of each difficulty class are measured;
weights give each class its share of all photos. Without the weights, the few photos that no tier recognises
would be under- or overrepresented, and these determine the 95th percentile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import xxhash
from pydantic import ConfigDict, Field

from nearsight.common.object_cache.profile import VersionedFile
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.training import train_all
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photo_book import TypicalTimes, measure_photos, pace_photos
from nearsight.experiments.twin.photos import PhotoMaker, PhotoSource, SampledPhotos, TwinPhoto

_PROFILED_AT = 16
_SECOND_LOOK = 0.995
_MUSEUM_BYTES = (27_000.0, 0.4)
EDGE_OBJECTS = 132
"""Number of objects in the edge's cache at the baseline (table 6.2)."""
_MOST_OF_A_CLASS = 80
_STRANGERS = 20
"""Number of photos of objects that are in no catalogue."""

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PhotoKind(VersionedFile):
    """Recognition difficulty and sizes of the visitors' photos."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    file_advice = "run an experiment of chapter 6 on the twin, which measures them"

    version: int = 3
    """Version 1 had no sample; in version 2, efforts were relative to the polynomials of profiles."""
    recall: tuple[tuple[int, float], ...]
    """(features, recall) at the first look, ascending; the last entry is what edges and clouds extract."""
    second_look: float
    """Recall of the cloud."""
    median_bytes: float
    """Median size of a file [bytes]."""
    spread: float
    """Standard deviation of the logarithm of sizes."""
    sample: tuple[tuple[Weight, TwinPhoto], ...] = ()
    """(weight, photo): measured photos to draw from; empty: photos are generated from the numbers above."""
    measured_over: str = ""
    """Identifies the costs to which the efforts in ``sample`` are relative; see `mark_of`."""

    @classmethod
    def of(cls, costs: CostModel) -> Self:
        """Derive recall from the profiles; sizes and the second look are those of the generated museum."""
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
        """Return a source that draws such photos."""
        if self.sample:
            return SampledPhotos(self.sample, rng)
        return PhotoMaker(self.recall, self.second_look, (self.median_bytes, self.spread), rng)


def mark_of(costs: CostModel) -> str:
    """Identify the profiles to which efforts are relative."""
    profiles = costs.edge.model_dump_json() + costs.device.model_dump_json()
    return xxhash.xxh64_hexdigest(profiles.encode())


def measure_kind(dataset: Dataset, costs: CostModel, seed: int, say: Callable[[str], None]) -> PhotoKind:
    """Measure the difficulty of a data set's photos with the real recognition pipeline.

    Parameters
    ----------
    dataset : Dataset
        Models are trained from its references; its queries are the photos.
    costs : CostModel
        Usual durations of lookups; efforts are relative to them.
    seed : int
        Seed of the choice of the exhibition.
    say : callable
        Called with a description of the current measurement, which takes minutes.
    """
    say("measuring the costs of this machine: recognition of photos by number of features")
    settings = RecognitionSettings()
    models = {model.object_id: model for model in train_all(dataset.references, settings)}
    shown = {Path(query.path): query.object_id for query in dataset.queries if query.object_id}
    strange = [Path(query.path) for query in dataset.queries if query.object_id is None]
    counts = tuple(one.query_features for one in costs.device.profiles)
    seen = measure_photos(shown, models.values(), counts, settings)

    say("measuring the costs of this machine: duration of lookups of some of these photos")
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(models), min(EDGE_OBJECTS, len(models)), replace=False)
    cached = tuple(list(models)[number] for number in sorted(chosen))
    exhibited = {path: name for path, name in shown.items() if name in set(cached)}
    sample = chosen_of({path: seen[path] for path in exhibited}, rng)
    asked = {**{path: shown[path] for path in sample}, **dict.fromkeys(strange[:_STRANGERS], "")}
    usual = _usual(costs, cached, exhibited)
    measured = measure_photos(asked, models.values(), counts, settings, usual)
    weights = weights_of(sample, seen)
    sizes = np.array([photo.size_bytes for photo in seen.values()], dtype=np.float64)
    return PhotoKind(
        recall=tuple(
            (count, float(np.mean([photo.recognised_with(count) for photo in seen.values()])))
            for count in counts
        ),
        second_look=float(np.mean([photo.at_second_look for photo in seen.values()])),
        median_bytes=float(np.median(sizes)),
        spread=float(np.log(sizes).std()),
        sample=tuple((weights.get(path, 1.0), photo) for path, photo in measured.items()),
        measured_over=mark_of(costs),
    )


def chosen_of(seen: Mapping[Path, TwinPhoto], rng: np.random.Generator) -> list[Path]:
    """Choose all photos of each difficulty class, or a random subset of a large class."""
    chosen: list[Path] = []
    for hardness in dict.fromkeys(map(_hardness, seen.values())):
        paths = [path for path, photo in seen.items() if _hardness(photo) == hardness]
        some = rng.choice(len(paths), min(_MOST_OF_A_CLASS, len(paths)), replace=False)
        chosen.extend(paths[number] for number in sorted(some))
    return chosen


def weights_of(sample: Sequence[Path], seen: Mapping[Path, TwinPhoto]) -> dict[Path, float]:
    """Weights of the sample: number of all photos in a class, divided by the class's number in the sample."""
    of_all = Counter(_hardness(photo) for photo in seen.values())
    of_sample = Counter(_hardness(seen[path]) for path in sample)
    return {path: of_all[_hardness(seen[path])] / of_sample[_hardness(seen[path])] for path in sample}


def _hardness(photo: TwinPhoto) -> Hashable:
    return photo.least_features, photo.at_second_look


def _usual(costs: CostModel, cached: tuple[str, ...], exhibited: Mapping[Path, str]) -> TypicalTimes:
    """An exhibition that is divided among devices; each holds as many objects as were profiled."""
    size = max(one.largest_k for one in costs.device.profiles)
    # The last part overlaps with the one before it, so that it is as large as the others.
    starts = [min(start, max(0, len(cached) - size)) for start in range(0, len(cached), size)]
    parts = [cached[start : start + size] for start in starts]
    return TypicalTimes(
        device=costs.device,
        edge=costs.edge,
        cached=cached,
        held={name: part for part in reversed(parts) for name in part},
        photos=pace_photos(exhibited),
    )
