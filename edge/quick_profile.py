"""Measurement of a profile within a second: f(k) of this machine, with a few models of the catalogue.

It is for an edge without a profile. It measures the time of lookups, but not recall, because it has no
photos: recall is the built-in default. `nearsight profile` measures both.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from nearsight.common.catalogue.answers import models_of
from nearsight.common.errors import InvalidArgument, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.profile import CacheProfile, default_profile
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.edge.cloud_client import when_done
from nearsight.edge.profiler import Profiler
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings

SAMPLE = 16
"""Number of models that are fetched for the measurement."""

_RETRY_S = 30.0
_SEED = 1
_SIZES = (1, 16, 128)
_GROWTH = 4
"""Factor of growth of a catalogue after which a quick profile is measured again, up to the largest size."""
_DATASET = "quick: "
_QUERIES = 6


def sample_of(object_ids: Sequence[str], count: int = SAMPLE) -> tuple[str, ...]:
    """A sample of ``count`` objects, evenly spread over the catalogue."""
    if len(object_ids) <= count:
        return tuple(object_ids)
    return tuple(object_ids[position * len(object_ids) // count] for position in range(count))


def measure_quick_profile(
    models: Sequence[ObjectModel],
    catalogue_size: int,
    settings: RecognitionSettings,
    wall_s: float,
    rng: np.random.Generator,
    cpu_time_s: Callable[[], float] = time.thread_time,
) -> CacheProfile:
    """Measure lookups at three cache sizes, half of them of cached objects, and fit a line.

    If the cache size exceeds the number of models, `decoy` objects are added. The increase of lookup times
    with k matters most, and a few real models do not show it.

    Parameters
    ----------
    models : sequence of ObjectModel
        A sample of the catalogue; some models serve as queries of objects that are not cached.
    catalogue_size : int
        Number of objects in the catalogue; larger caches are not measured.
    settings : RecognitionSettings
        Recognition settings of the edge.
    wall_s : float
        Time of the measurement, in seconds since the epoch.
    rng : numpy.random.Generator
        Random numbers for the decoys.
    cpu_time_s : callable
        CPU time of this thread [s]. The edge measures while it serves requests, and the work of other threads
        must not count.

    Raises
    ------
    InvalidArgument
        If ``models`` is empty.
    """
    if not models:
        raise InvalidArgument("a profile needs at least one object model")
    held = max(1, len(models) * 2 // 3)
    strangers = [_query(model, settings) for model in models[held:]][:_QUERIES]
    sizes = sorted({min(size, max(1, catalogue_size)) for size in _SIZES})
    decoys = [decoy(models[number % len(models)], number, rng) for number in range(max(0, sizes[-1] - held))]
    cached = [*models[:held], *decoys]
    times_ms = [_mean_lookup_ms(cached[:size], held, strangers, settings, cpu_time_s) for size in sizes]
    slope = max(0.0, float(np.polyfit(sizes, times_ms, 1)[0])) if len(sizes) > 1 else 0.0
    intercept = max(float(np.mean(times_ms)) - slope * float(np.mean(sizes)), 0.01)
    return default_profile(settings.backend, settings.query_features).model_copy(
        update={
            "largest_k": sizes[-1],
            "lookup_ms": (intercept, slope),
            "created": datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds"),
            "machine": platform.platform(),
            "dataset": f"{_DATASET}{len(models)} models of the catalogue; recall is the built-in default",
        }
    )


def fits(profile: CacheProfile, catalogue_size: int) -> bool:
    """Whether a profile was measured and, if it is a quick one, the catalogue has hardly grown since."""
    grown = _GROWTH * profile.largest_k <= min(catalogue_size, _SIZES[-1])
    return bool(profile.created) and not (profile.dataset.startswith(_DATASET) and grown)


def decoy(model: ObjectModel, number: int, rng: np.random.Generator) -> ObjectModel:
    """An unrelated object with the same search cost: one random mask is XORed with every descriptor.

    Distances between its own descriptors are unchanged; distances to others are those of unrelated objects.
    """
    mask = rng.integers(0, 256, DESCRIPTOR_BYTES, dtype=np.uint8)
    views = tuple(replace(view, descriptors=view.descriptors ^ mask) for view in model.views)
    return replace(model, object_id=f"decoy {number}", views=views)


def _query(model: ObjectModel, settings: RecognitionSettings) -> Features:
    return model.views[0].strongest(settings.query_features)


def _mean_lookup_ms(
    models: Sequence[ObjectModel],
    real: int,
    strangers: Sequence[Features],
    settings: RecognitionSettings,
    cpu_time_s: Callable[[], float],
) -> float:
    """Mean lookup time [ms]; cached and uncached objects have equal weight.

    The medians of both groups are used: an interrupted lookup must not distort so small a sample.
    """
    recognizer = ObjectRecognizer.build(models, settings)
    held = [_query(model, settings) for model in models[: min(real, _QUERIES)]]
    recognizer.recognize(held[0])  # the first call includes lazy initialisation
    groups = [group for group in (held, strangers) if group]
    medians = [np.median([_lookup_ms(recognizer, query, cpu_time_s) for query in group]) for group in groups]
    return float(np.mean(medians))


def _lookup_ms(recognizer: ObjectRecognizer, query: Features, cpu_time_s: Callable[[], float]) -> float:
    started_s = cpu_time_s()
    recognizer.recognize(query)
    return (cpu_time_s() - started_s) * 1e3


@dataclass(eq=False)
class ProfileMeasurement:
    """Fetches a few models and measures a profile, in the background; repeats a failed fetch."""

    catalogue: str
    """Catalogue of the models."""
    versions: Callable[[], Mapping[str, int]]
    """Returns the current versions of the catalogue's objects."""
    profiler: Profiler
    """Receives the profile."""
    settings: EdgeSettings
    """Settings of the daemon."""
    services: EdgeServices
    """Objects that all caches share."""
    _closed: bool = field(default=False, init=False)
    _fetching: bool = field(default=False, init=False)

    def update(self) -> None:
        """Measure, unless the present profile fits the catalogue; called for each new list of objects."""
        versions = tuple(self.versions())
        if self._closed or self._fetching or not versions or fits(self.profiler.profile, len(versions)):
            return
        self._fetching = True
        services, sample = self.services, sample_of(versions)
        future = services.cloud.get_models(self.catalogue, sample, self.settings.fetch.timeout_s)
        when_done(future, services.background, lambda reply: models_of(reply, sample).models, self._measure)

    def close(self) -> None:
        """Cancel the measurement."""
        self._closed = True

    def _measure(self, models: tuple[ObjectModel, ...] | NearsightError) -> None:
        if self._closed:
            return
        services, log = self.services, get_logger("profile").bind(catalogue=self.catalogue)
        self._fetching = False
        if isinstance(models, NearsightError) or not models:
            log.warning("no models for a quick profile yet: the present profile stays in use")
            services.background.submit(self.update, name=f"profile {self.catalogue}", after_s=_RETRY_S)
            return
        log.warning(
            "no profile given: measuring a quick one",
            advice="`nearsight profile` measures a complete one",
        )
        profile = measure_quick_profile(
            models,
            len(self.versions()),
            self.settings.recognition,
            services.clock.wall(),
            np.random.default_rng(_SEED),
        )
        self.profiler.use(profile)
        log.info("quick profile", lookup_ms=[round(c, 4) for c in profile.lookup_ms], models=len(models))
