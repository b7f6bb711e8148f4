"""The visitors' photos: how hard they are to recognise, how large, how long a look takes.

Measured photos are a sample, from which whole photos are drawn. Where there is none, in the dissertation's
world and in smoke runs, photos differ in recall and size alone.

The sample is measured on the photos of a museum. All are looked at once, among all objects: that is enough to
know what share is recognised. How long looks take is measured several times over, among the objects that an
edge and its devices would hold, on photos of one exhibition: of each class of hardness some, with weights
that give each class its share among all. Without the weights, the few photos that nobody recognises would be
too few, or too many, and they make the 95th percentile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
import xxhash
from pydantic import ConfigDict, Field

from nearsight.common.object_cache.profile import VersionedFile
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import PhotoMaker, PhotoSource, SampledPhotos, TwinPhoto

if TYPE_CHECKING:
    from nearsight.experiments.datasets.dataset import Dataset
    from nearsight.experiments.twin.photo_book import Usual

PHOTOS_VERSION = 3
"""1 had no sample; in 2, efforts were over the polynomials of profiles."""
_PROFILED_AT = 16
_SECOND_LOOK = 0.995
_MUSEUM_BYTES = (27_000.0, 0.4)
EDGE_OBJECTS = 132
"""In the edge's cache at the baseline (table 6.2)."""
_MOST_OF_A_CLASS = 80
_STRANGERS = 20
"""Photos of what is in no catalogue."""

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PhotoKind(VersionedFile):
    """How hard the visitors' photos are to recognise, and how large they are."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    file_version = PHOTOS_VERSION
    file_advice = "run an experiment of chapter 6 on the twin: it measures them"

    version: int = PHOTOS_VERSION
    recall: tuple[tuple[int, float], ...]
    """(features, recall) at first look, the fewest first; the last: what edges and clouds extract."""
    second_look: float
    """Recall of the cloud."""
    median_bytes: float
    """Size of a file."""
    spread: float
    """Standard deviation of the logarithm of sizes."""
    sample: tuple[tuple[Weight, TwinPhoto], ...] = ()
    """(weight, photo), measured and drawn as they are; empty: photos follow from the numbers above."""
    measured_over: str = ""
    """Over which costs the efforts in ``sample`` are; see `mark_of`."""

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


def mark_of(costs: CostModel) -> str:
    """Identifies the profiles that efforts are relative to."""
    profiles = costs.edge.model_dump_json() + costs.device.model_dump_json()
    return xxhash.xxh64_hexdigest(profiles.encode())


def measure_kind(dataset: Dataset, costs: CostModel, seed: int, say: Callable[[str], None]) -> PhotoKind:
    """How hard the photos of a data set are, looked at with the real pipeline.

    Parameters
    ----------
    dataset : Dataset
        Models are trained from its references, its queries are the photos.
    costs : CostModel
        What looks usually take; efforts are over that.
    seed : int
        Of the exhibition.
    say : callable
        Called with what is measured now: it takes minutes.
    """
    from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
    from nearsight.experiments.datasets.training import train_all  # noqa: PLC0415
    from nearsight.experiments.twin.photo_book import measure_photos  # noqa: PLC0415

    say("costs of this machine are measured: which photos are recognised with how many features")
    settings = RecognitionSettings()
    models = {model.object_id: model for model in train_all(dataset.references, settings)}
    shown = {Path(query.path): query.object_id for query in dataset.queries if query.object_id}
    strange = [Path(query.path) for query in dataset.queries if query.object_id is None]
    counts = tuple(one.query_features for one in costs.device.profiles)
    seen = measure_photos(shown, models.values(), counts, settings)

    say("costs of this machine are measured: how long looks at some of these photos take")
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
            (count, float(np.mean([photo.known_with(count) for photo in seen.values()]))) for count in counts
        ),
        second_look=float(np.mean([photo.at_second_look for photo in seen.values()])),
        median_bytes=float(np.median(sizes)),
        spread=float(np.log(sizes).std()),
        sample=tuple((weights.get(path, 1.0), photo) for path, photo in measured.items()),
        measured_over=mark_of(costs),
    )


def chosen_of(seen: Mapping[Path, TwinPhoto], rng: np.random.Generator) -> list[Path]:
    """Of each class of hardness all photos, or some if there are many."""
    chosen: list[Path] = []
    for hardness in dict.fromkeys(map(_hardness, seen.values())):
        paths = [path for path, photo in seen.items() if _hardness(photo) == hardness]
        some = rng.choice(len(paths), min(_MOST_OF_A_CLASS, len(paths)), replace=False)
        chosen.extend(paths[number] for number in sorted(some))
    return chosen


def weights_of(sample: Sequence[Path], seen: Mapping[Path, TwinPhoto]) -> dict[Path, float]:
    """How many of all photos each in the sample stands for: together those of its class."""
    of_all = Counter(_hardness(photo) for photo in seen.values())
    of_sample = Counter(_hardness(seen[path]) for path in sample)
    return {path: of_all[_hardness(seen[path])] / of_sample[_hardness(seen[path])] for path in sample}


def _hardness(photo: TwinPhoto) -> Hashable:
    return photo.least_features, photo.at_second_look


def _usual(costs: CostModel, cached: tuple[str, ...], exhibited: Mapping[Path, str]) -> Usual:
    """An exhibition whose devices hold a part of it each, as large as they profiled."""
    from nearsight.experiments.twin.photo_book import Usual, pace_photos  # noqa: PLC0415

    size = max(one.largest_k for one in costs.device.profiles)
    # The last part overlaps with the one before it, so that it is as large as the others.
    starts = [min(start, max(0, len(cached) - size)) for start in range(0, len(cached), size)]
    parts = [cached[start : start + size] for start in starts]
    return Usual(
        device=costs.device,
        edge=costs.edge,
        cached=cached,
        held={name: part for part in reversed(parts) for name in part},
        photos=pace_photos(exhibited),
    )
