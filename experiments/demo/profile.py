"""The offline analysis of the demo: a small profile of this machine for the edge (dissertation, 3.3.1).

`nearsight profile` measures the same on a whole data set in minutes; here a part of the museum must do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.profiling.measuring import ProfilingPlan, fit_profile, measure, prepare

OBJECTS = 40
SUBSETS = 2
"""Too few for cross-validation: f, recall and precision become straight lines."""


def profile_machine(museum: Path, seed: int, progress: Callable[[int, int], None]) -> Path:
    """Measure f(k), recall(k) and precision(k) on the first exhibits of a museum; returns the profile's path.

    Parameters
    ----------
    museum : Path
        A generated museum with at least one photo of each exhibit.
    seed : int
        Of the random subsets.
    progress : callable
        Told the steps done and their total.
    """
    pin_threads()
    settings = RecognitionSettings()
    dataset = _part_of(load_dataset(museum), OBJECTS)
    largest = len(dataset.references)
    sizes = tuple(sorted({1, max(1, largest // 2), largest}))
    plan = ProfilingPlan(sizes, SUBSETS, relevant=10, noise=10, seed=seed)
    total = len(dataset.references) + len(dataset.queries) + plan.steps
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        progress(done, total)

    data = prepare(dataset, settings, advance)
    rows = measure(data, plan, settings, advance)
    path = museum / "profile.json"
    fit_profile(rows, data, settings, time.time()).save(path)
    return path


def _part_of(dataset: Dataset, count: int) -> Dataset:
    """The first objects, their photos, and some photos of what is not in the catalogue."""
    references = dataset.references[:count]
    ids = {reference.object_id for reference in references}
    known = [query for query in dataset.queries if query.object_id in ids]
    unknown = [query for query in dataset.queries if query.object_id is None]
    return Dataset(dataset.name, references, (*known, *unknown[:count]))
