"""Offline analysis of a device (dissertation, 4.4.1 and 4.5.2): table 4.1 and figure 4.4 on this machine.

The subsets and photos are the same for every number of features, so that only this number differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import side_px_for
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.profiling.measuring import (
    ProfilingPlan,
    Progress,
    fit_profile,
    measure,
    prepare,
)

FEATURE_COUNTS = (200, 400, 600, 800)
"""Numbers of features in table 4.1."""

_SIZES = (1, 2, 5, 10, 20, 40, 80)

StageProgress = Callable[[str, int], Progress]
"""Called with the name and the number of steps of a stage at its start; returns its progress callback."""


def _default_sizes(objects: int) -> tuple[int, ...]:
    """Cache sizes for a device: small, because its cache holds only the likely next objects."""
    return (*(size for size in _SIZES if size < objects), min(objects, 2 * _SIZES[-1]))


def quick_pipeline(settings: RecognitionSettings, features: int) -> RecognitionSettings:
    """Pipeline of a device that uses this number of features per photo."""
    limits = replace(settings.limits, longest_side=side_px_for(features, settings))
    return settings.model_copy(update={"query_features": features, "limits": limits})


def analyse_device(
    dataset: Dataset,
    settings: RecognitionSettings,
    counts: Sequence[int],
    plan: ProfilingPlan,
    wall_s: float,
    progress: StageProgress,
) -> tuple[DeviceProfile, tuple[str, ...]]:
    """Measure f_D(k) and recall_D(k) for every number of features.

    Parameters
    ----------
    dataset : Dataset
        References and photos of them.
    settings : RecognitionSettings
        The pipeline; its number of query features is replaced.
    counts : sequence of int
        Numbers of features.
    plan : ProfilingPlan
        Without sizes, they are chosen for the number of trained objects.
    wall_s : float
        The date, in seconds since the epoch.
    progress : callable
        Called at the start of each stage.

    Returns
    -------
    profile : DeviceProfile
        One `CacheProfile` per number of features.
    skipped : tuple of str
        Images that could not be used, and why.

    Raises
    ------
    InvalidArgument
        If a number of features is out of range, or no profile can be fitted to the measurements.
    """
    chosen = sorted(set(counts))
    if not chosen or not all(50 <= count <= 10_000 for count in chosen):
        raise InvalidArgument(
            f"numbers of features must be between 50 and 10000, got {list(counts)}",
            advice="for example --features 200,400,600,800",
        )
    steps = len(dataset.references) + len(dataset.queries)
    prepared = prepare(dataset, settings, progress("reading images", steps))
    skipped, profiles = prepared.skipped, []
    plan = replace(plan, sizes=plan.sizes or _default_sizes(len(prepared.models)))
    for count in chosen:
        pipeline = quick_pipeline(settings, count)
        step = progress(f"{count} features: reading photos", len(dataset.queries))
        prepared = prepare(dataset, pipeline, step, prepared.models)
        rows = measure(prepared, plan, pipeline, progress(f"{count} features: measuring", plan.steps))
        profiles.append(fit_profile(rows, prepared, pipeline, wall_s))
    return DeviceProfile(profiles=tuple(profiles)), skipped
