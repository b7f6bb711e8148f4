"""The offline analysis that an experiment's edges rest on, made on the same machine before they start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearsight.experiments.studies.cachier.offline_analysis import nothing

if TYPE_CHECKING:
    from nearsight.common.object_cache.profile import CacheProfile
    from nearsight.common.recognition.settings import RecognitionSettings
    from nearsight.experiments.datasets.dataset import Dataset
    from nearsight.experiments.profiling.measuring import PreparedData, ProfilingPlan


@dataclass(frozen=True, slots=True)
class ProfileAmount:
    """How much of an offline analysis is made; a part of an experiment's plan.

    Attributes
    ----------
    sizes : tuple of int
        Cache sizes.
    subsets : int
        Random subsets per size.
    queries : int
        Photos of objects in the subset, and as many of others.
    """

    sizes: tuple[int, ...]
    subsets: int
    queries: int

    def plan(self, seed: int) -> ProfilingPlan:
        """The same with its random choices."""
        from nearsight.experiments.profiling.measuring import ProfilingPlan  # noqa: PLC0415

        return ProfilingPlan(self.sizes, self.subsets, self.queries, self.queries, seed=seed)


class EdgeProfiles:
    """The offline analyses of a run over one data set, each made when it is first needed."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._prepared: PreparedData | None = None

    def of(
        self,
        path: Path,
        pipeline: Mapping[str, str | bool],
        dataset: Dataset,
        amount: ProfileAmount,
        seed: int,
    ) -> Path:
        """The profile that is kept at ``path``, of a recognizer with the settings ``pipeline``."""
        if path not in self._paths:
            from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
            from nearsight.experiments.profiling.measuring import prepare  # noqa: PLC0415

            if self._prepared is None:
                self._prepared = prepare(dataset, RecognitionSettings(), nothing)
            settings = RecognitionSettings.model_validate(pipeline)
            _analysed(self._prepared, settings, amount, seed).save(path)
            self._paths.add(path)
        return path


def measure_edge(dataset: Dataset, amount: ProfileAmount, seed: int) -> CacheProfile:
    """The offline analysis of an edge of this machine, with the usual settings."""
    from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
    from nearsight.experiments.profiling.measuring import prepare  # noqa: PLC0415

    settings = RecognitionSettings()
    return _analysed(prepare(dataset, settings, nothing), settings, amount, seed)


def _analysed(
    prepared: PreparedData, settings: RecognitionSettings, amount: ProfileAmount, seed: int
) -> CacheProfile:
    from nearsight.experiments.profiling.measuring import fit_profile, measure  # noqa: PLC0415

    rows = measure(prepared, amount.plan(seed), settings, nothing)
    return fit_profile(rows, prepared, settings, time.time())
