"""A profile in a second: f(k) of this machine, measured with a few of the catalogue's own models.

For an edge that was started without a profile. It says how long lookups take here; it cannot say how many
photos are recognised, as it has no photos: recall is taken from the built-in default. `nearsight profile`
measures both.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from nearsight.common.caching.profile import CacheProfile, default_profile
from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings

SAMPLE = 24
"""How many models are worth fetching for it."""

_QUERIES = 6


def sample_of(object_ids: Sequence[str], count: int = SAMPLE) -> tuple[str, ...]:
    """``count`` objects spread evenly over the catalogue."""
    if len(object_ids) <= count:
        return tuple(object_ids)
    return tuple(object_ids[position * len(object_ids) // count] for position in range(count))


def measure_quick_profile(
    models: Sequence[ObjectModel], settings: RecognitionSettings, clock: Clock
) -> CacheProfile:
    """Time lookups at three cache sizes, half of them of objects that the cache holds, and fit a line.

    Parameters
    ----------
    models : sequence of ObjectModel
        A sample; a third of it serves as queries of objects that are not cached.
    settings : RecognitionSettings
        The pipeline in use.
    clock : Clock
        The time.

    Raises
    ------
    InvalidArgument
        If there is no model.
    """
    if not models:
        raise InvalidArgument("a profile needs at least one object model")
    held = max(1, len(models) * 2 // 3)
    strangers = [_query(model, settings) for model in models[held:]][:_QUERIES]
    sizes = sorted({1, max(1, held // 4), held})
    times_ms = [_mean_lookup_ms(models[:size], strangers, settings, clock) for size in sizes]
    if len(sizes) > 1:
        slope, intercept = np.polyfit(sizes, times_ms, 1)
        slope = max(0.0, float(slope))
        intercept = max(float(np.mean(times_ms)) - slope * float(np.mean(sizes)), 0.01)
    else:
        slope, intercept = 0.0, max(times_ms[0], 0.01)
    default = default_profile(settings.backend, settings.query_features)
    return default.model_copy(
        update={
            "largest_k": sizes[-1],
            "lookup_ms": (float(intercept), float(slope)),
            "created": datetime.fromtimestamp(clock.wall(), UTC).isoformat(timespec="seconds"),
            "machine": platform.platform(),
            "dataset": f"{len(models)} models of the catalogue itself; recall is the built-in default",
        }
    )


def _query(model: ObjectModel, settings: RecognitionSettings) -> Features:
    return model.views[0].strongest(settings.query_features)


def _mean_lookup_ms(
    models: Sequence[ObjectModel], strangers: Sequence[Features], settings: RecognitionSettings, clock: Clock
) -> float:
    """Mean over held objects and over strangers, each half of the weight."""
    recognizer = ObjectRecognizer.build(models, settings)
    held = [_query(model, settings) for model in models[:_QUERIES]]
    recognizer.recognize(held[0])  # the first call pays for what is set up lazily
    groups = [group for group in (held, strangers) if group]
    return float(
        np.mean([np.mean([_lookup_ms(recognizer, query, clock) for query in group]) for group in groups])
    )


def _lookup_ms(recognizer: ObjectRecognizer, query: Features, clock: Clock) -> float:
    started_s = clock.monotonic()
    recognizer.recognize(query)
    return (clock.monotonic() - started_s) * 1e3
