"""The offline analysis that an experiment's edges rest on, made on the same machine before they start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from nearsight.experiments.figures.offline_analysis import nothing

if TYPE_CHECKING:
    from nearsight.common.recognition.settings import RecognitionSettings
    from nearsight.experiments.profiling import PreparedData, ProfilingPlan


def measure_edge_profile(
    data: PreparedData, settings: RecognitionSettings, plan: ProfilingPlan, path: Path
) -> Path:
    """Measure, fit and save; returns the path for the daemon's settings."""
    from nearsight.experiments.profiling import fit_profile, measure  # noqa: PLC0415

    rows = measure(data, plan, settings, nothing)
    path = path.resolve()
    fit_profile(rows, data, settings, time.time()).save(path)
    return path
