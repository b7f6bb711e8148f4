"""A profile in a second: f(k) of this machine, measured with a few of the catalogue's own models.

For an edge that was started without a profile. It says how long lookups take here; it cannot say how many
photos are recognised, as it has no photos: recall is taken from the built-in default. `nearsight profile`
measures both.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
"""How many models are worth fetching for it."""

_RETRY_S = 30.0
_SEED = 1
_SIZES = (1, 16, 128)
_QUERIES = 6


def sample_of(object_ids: Sequence[str], count: int = SAMPLE) -> tuple[str, ...]:
    """``count`` objects spread evenly over the catalogue."""
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
    """Time lookups at three cache sizes, half of them of objects that the cache holds, and fit a line.

    Larger caches than there are models are filled up with `decoy` objects: how lookups slow down with k is
    what matters most, and a few real models do not show it.

    Parameters
    ----------
    models : sequence of ObjectModel
        A sample of the catalogue; some serve as queries of objects that are not cached.
    catalogue_size : int
        Objects in the catalogue; larger caches are not measured.
    settings : RecognitionSettings
        The pipeline in use.
    wall_s : float
        The date, in seconds since the epoch.
    rng : numpy.random.Generator
        Makes the decoys.
    cpu_time_s : callable
        CPU time of this thread: an edge measures while it serves, and what others compute meanwhile must not
        count.

    Raises
    ------
    InvalidArgument
        If there is no model.
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
            "dataset": f"quick: {len(models)} models of the catalogue; recall is the built-in default",
        }
    )


def decoy(model: ObjectModel, number: int, rng: np.random.Generator) -> ObjectModel:
    """An object like no other that is as expensive to search: every descriptor XORed with one random mask.

    Distances among its own descriptors stay as they are; those to all others become those of unrelated ones.
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
    """Time of a lookup, of held objects and of strangers with half of the weight each.

    Medians of both: with so few lookups, one that the machine interrupted must not decide.
    """
    recognizer = ObjectRecognizer.build(models, settings)
    held = [_query(model, settings) for model in models[: min(real, _QUERIES)]]
    recognizer.recognize(held[0])  # the first call pays for what is set up lazily
    groups = [group for group in (held, strangers) if group]
    medians = [np.median([_lookup_ms(recognizer, query, cpu_time_s) for query in group]) for group in groups]
    return float(np.mean(medians))


def _lookup_ms(recognizer: ObjectRecognizer, query: Features, cpu_time_s: Callable[[], float]) -> float:
    started_s = cpu_time_s()
    recognizer.recognize(query)
    return (cpu_time_s() - started_s) * 1e3


class ProfileMeasurement:
    """Fetches a few models and measures once, in the background; tries again until the models can be fetched.

    Parameters
    ----------
    catalogue : str
        Whose models are used.
    versions : callable
        The catalogue as of now.
    profiler : Profiler
        Gets the profile.
    settings : EdgeSettings
        The pipeline that is measured.
    services : EdgeServices
        Shared parts.
    """

    def __init__(
        self,
        catalogue: str,
        versions: Callable[[], Mapping[str, int]],
        profiler: Profiler,
        settings: EdgeSettings,
        services: EdgeServices,
    ) -> None:
        self._catalogue = catalogue
        self._versions = versions
        self._profiler = profiler
        self._settings = settings
        self._services = services
        self._log = get_logger("profile").bind(catalogue=catalogue)
        self._closed = False

    def start(self) -> None:
        """Fetch the models, then measure."""
        sample = sample_of(tuple(self._versions()))
        if self._closed or not sample:
            return
        services = self._services
        future = services.cloud.get_models(self._catalogue, sample, self._settings.fetch.timeout_s)
        when_done(future, services.background, lambda reply: models_of(reply, sample).models, self._measure)

    def close(self) -> None:
        """Measure no more."""
        self._closed = True

    def _measure(self, models: tuple[ObjectModel, ...] | NearsightError) -> None:
        services = self._services
        if isinstance(models, NearsightError) or not models:
            self._log.warning("no models for a quick profile yet: the built-in default stays in use")
            services.background.submit(self.start, name=f"profile {self._catalogue}", after_s=_RETRY_S)
            return
        profile = measure_quick_profile(
            models,
            len(self._versions()),
            self._settings.recognition,
            services.clock.wall(),
            np.random.default_rng(_SEED),
        )
        self._profiler.use(profile)
        self._log.info(
            "quick profile", lookup_ms=[round(c, 4) for c in profile.lookup_ms], models=len(models)
        )
