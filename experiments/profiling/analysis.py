"""Offline analyses of edges and devices (Cachier dissertation, 3.3.1 and 4.5.2: table 4.1, figure 4.4).

A device is analysed with several numbers of features, an edge with one. The objects, subsets and photos are
the same for every number, so that only this number differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.extraction import side_px_for
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.training import train_references
from nearsight.experiments.profiling.measuring import (
    ProfilingPlan,
    Progress,
    fit_profile,
    measure,
    no_progress,
    prepare,
)

FEATURE_COUNTS = (200, 400, 600, 800)
"""Numbers of features in table 4.1."""

_SIZES = (1, 2, 5, 10, 20, 40, 80)
"""Sizes of the caches of devices."""

StageProgress = Callable[[str, int], Progress]
"""Called with the name and the number of steps of a stage at its start; returns its progress callback."""


def default_sizes(objects: int) -> tuple[int, ...]:
    """Sizes that cover a data set: 1, and fractions of its objects up to all of them."""
    parts = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1)
    return tuple(sorted({1, *(max(1, round(objects * part)) for part in parts)}))


def quick_pipeline(settings: RecognitionSettings, features: int) -> RecognitionSettings:
    """Pipeline of a device that uses this number of features per photo."""
    limits = replace(settings.limits, longest_side=side_px_for(features, settings))
    return settings.model_copy(update={"query_features": features, "limits": limits})


def analyse(
    dataset: Dataset,
    settings: RecognitionSettings,
    plan: ProfilingPlan,
    progress: StageProgress = lambda _stage, _steps: no_progress,
    *,
    features: Sequence[int] | None = None,
) -> tuple[tuple[CacheProfile, ...], tuple[str, ...]]:
    """Make the whole offline analysis of an edge, or of a device.

    Parameters
    ----------
    dataset : Dataset
        References and photos of them.
    settings : RecognitionSettings
        The pipeline. Objects are always trained with it.
    plan : ProfilingPlan
        Without sizes, they are chosen for the number of trained objects: for a device they are small, because
        its cache holds only the likely next objects.
    progress : callable
        Called at the start of each stage.
    features : sequence of int, optional
        Numbers of features per photo of a device. None: an edge, with those of ``settings``.

    Returns
    -------
    profiles : tuple of CacheProfile
        That of the edge, or one per number of features, in ascending order.
    skipped : tuple of str
        Images that could not be used, and why.

    Raises
    ------
    ConfigurationError, MissingDependency
        If there is no such backend, or it is not installed.
    InvalidArgument
        If a number of features is out of range, no object or no photo is usable, or no profile can be fitted
        to the measurements.
    """
    if features is not None and not (features and all(50 <= count <= 10_000 for count in features)):
        raise InvalidArgument(
            f"numbers of features must be between 50 and 10000, got {list(features)}",
            advice="for example --features 200,400,600,800",
        )
    # Fails here if the backend is not installed, not after the training.
    ObjectRecognizer.build((), settings)
    training = progress("training objects", len(dataset.references))
    models, failures = train_references(dataset.references, settings, training)
    skipped = [f"{object_id}: {error.message}" for object_id, error in failures.items()]
    if features is None:
        pipelines, sizes = [settings], default_sizes(len(models))
    else:
        pipelines = [quick_pipeline(settings, count) for count in sorted(set(features))]
        sizes = (*(k for k in _SIZES if k < len(models)), min(len(models), 2 * _SIZES[-1]))
    plan = replace(plan, sizes=plan.sizes or sizes)
    profiles = []
    for pipeline in pipelines:
        name = f"{pipeline.query_features} features"
        reading = progress(f"{name}: reading photos", len(dataset.queries))
        data = prepare(dataset, pipeline, reading, models)
        rows = measure(data, plan, pipeline, progress(f"{name}: measuring", plan.steps))
        profiles.append(fit_profile(rows, data, pipeline, time.time()))
        skipped += data.skipped
    return tuple(profiles), tuple(dict.fromkeys(skipped))
