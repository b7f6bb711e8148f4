"""Offline analysis of a device (dissertation, 4.4.1 and 4.5.2): table 4.1 and figure 4.4 on this machine.

The same subsets and photos for every number of features, so that nothing but that number differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import side_px_for
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.profiling.measuring import (
    ProfilingPlan,
    Progress,
    SubsetRow,
    fit_profile,
    measure,
    prepare,
)

FEATURE_COUNTS = (200, 400, 600, 800)
"""Of table 4.1."""

_SIZES = (1, 2, 5, 10, 20, 40, 80)

StageProgress = Callable[[str, int], Progress]
"""Called with the name and the number of steps of a stage that begins; returns what counts them."""


@dataclass(frozen=True, slots=True)
class DeviceAnalysis:
    """What was measured, and the profile that was fitted to it."""

    profile: DeviceProfile
    """One `CacheProfile` per number of features."""
    rows: dict[int, tuple[SubsetRow, ...]]
    """The measurements behind it, by number of features."""
    skipped: tuple[str, ...]
    """Images that could not be used, and why."""


def device_sizes(objects: int) -> tuple[int, ...]:
    """Cache sizes for a device: few objects, as it holds what may come next."""
    return (*(size for size in _SIZES if size < objects), min(objects, 2 * _SIZES[-1]))


def quick_pipeline(settings: RecognitionSettings, features: int) -> RecognitionSettings:
    """How a device reads a photo when it looks with so many features."""
    limits = replace(settings.limits, longest_side=side_px_for(features, settings))
    return settings.model_copy(update={"query_features": features, "limits": limits})


def analyse_device(
    dataset: Dataset,
    settings: RecognitionSettings,
    counts: Sequence[int],
    plan_of: Callable[[int], ProfilingPlan],
    wall_s: float,
    progress: StageProgress,
) -> DeviceAnalysis:
    """Measure f_D(k) and recall_D(k) for every number of features.

    Parameters
    ----------
    dataset : Dataset
        References and photos of them.
    settings : RecognitionSettings
        The pipeline; its number of query features is replaced.
    counts : sequence of int
        Numbers of features.
    plan_of : callable
        What to measure, given the number of objects that could be trained.
    wall_s : float
        The date, in seconds since the epoch.
    progress : callable
        Called when a stage begins.

    Raises
    ------
    InvalidArgument
        If a number of features cannot be, or the data make no profile.
    """
    chosen = sorted(set(counts))
    if not chosen or not all(50 <= count <= 10_000 for count in chosen):
        raise InvalidArgument(
            f"numbers of features must be within 50 and 10000, got {list(counts)}",
            advice="for example --features 200,400,600,800",
        )
    steps = len(dataset.references) + len(dataset.queries)
    prepared = prepare(dataset, settings, progress("reading images", steps))
    skipped = prepared.skipped
    profiles, rows = [], {}
    for count in chosen:
        pipeline = quick_pipeline(settings, count)
        step = progress(f"{count} features: reading photos", len(dataset.queries))
        prepared = prepare(dataset, pipeline, step, prepared.models)
        plan = plan_of(len(prepared.models))
        rows[count] = measure(prepared, plan, pipeline, progress(f"{count} features: measuring", plan.steps))
        profiles.append(fit_profile(rows[count], prepared, pipeline, wall_s))
    return DeviceAnalysis(DeviceProfile(profiles=tuple(profiles)), rows, skipped)
