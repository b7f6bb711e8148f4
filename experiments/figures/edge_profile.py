"""The offline analysis that an experiment's edges rest on, made on the same machine before they start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nearsight.experiments.figures.offline_analysis import nothing

if TYPE_CHECKING:
    from nearsight.experiments.datasets.dataset import Dataset
    from nearsight.experiments.profiling import PreparedData


class ProfileAmount(Protocol):
    """How much of an offline analysis is made; a part of an experiment's plan."""

    @property
    def profile_sizes(self) -> tuple[int, ...]:
        """Cache sizes."""

    @property
    def profile_subsets(self) -> int:
        """Random subsets per size."""

    @property
    def profile_queries(self) -> int:
        """Photos of objects in the subset, and as many of others."""


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
            from nearsight.experiments.profiling import (  # noqa: PLC0415
                ProfilingPlan,
                fit_profile,
                measure,
                prepare,
            )

            if self._prepared is None:
                self._prepared = prepare(dataset, RecognitionSettings(), nothing)
            plan = ProfilingPlan(
                amount.profile_sizes,
                amount.profile_subsets,
                amount.profile_queries,
                amount.profile_queries,
                seed=seed,
            )
            settings = RecognitionSettings.model_validate(pipeline)
            rows = measure(self._prepared, plan, settings, nothing)
            fit_profile(rows, self._prepared, settings, time.time()).save(path)
            self._paths.add(path)
        return path
