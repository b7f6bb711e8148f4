"""Prepares the demo: museum, catalogue, profile of the machine, and the photos and traces of the visitors.

Everything is derived from the scenario. A second run in the same folder reuses existing files: the generation
of the museum resumes, the ingestion skips unchanged objects, and existing photos are kept.

The offline analysis (dissertation, 3.3.1) gives the edge a small profile of this machine. The command
`nearsight profile` takes minutes for the same measurements on a whole data set; the demo uses a part of the
museum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nearsight.common.background.progress import Progress
from nearsight.common.files import write_atomically
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.demo.scenario import Scenario
from nearsight.experiments.museum.generation import (
    each_exhibit,
    generate_museum,
    query_name,
    render_photos,
)
from nearsight.experiments.museum.settings import UNKNOWN_FROM, VERSION, MuseumSettings
from nearsight.experiments.profiling.analysis import analyse
from nearsight.experiments.profiling.measuring import ProfilingPlan
from nearsight.experiments.rig.tiers import fill_catalogue
from nearsight.experiments.rig.walks import Trace, write_traces
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import mix_in_unknown
from nearsight.experiments.traces.requests import PhotoRequest, photo_requests
from nearsight.experiments.traces.visits import Visit, write_visits_csv

Stage = Callable[[str], Progress]
FIRST_VISIT_PHOTO = 100
"""First number of the visitors' photos; the museum's own queries have lower numbers."""

_PROFILED_OBJECTS = 40
_SUBSETS = 2
"""Number of random subsets. It is too small for cross-validation, so f, recall and precision become straight
lines."""


@dataclass(frozen=True, slots=True)
class Material:
    """Files of a session."""

    museum: Path
    """The generated museum; the paths of the traces are relative to it."""
    database: Path
    """The cloud's catalogue."""
    profile: Path
    """Profile of a recognition cache on this machine."""
    traces: tuple[Trace, ...]
    """One per visitor."""
    extended_traces: tuple[Trace, ...]
    """The same traces, extended by the time without a cloud."""


def prepare(scenario: Scenario, folder: Path, stage: Stage) -> Material:
    """Create everything that does not exist yet.

    Parameters
    ----------
    scenario : Scenario
        Determines the content.
    folder : Path
        Existing folder for the files.
    stage : callable
        Opens a progress bar.

    Raises
    ------
    ConfigurationError
        If the folder has other content under the same name.
    InternalError
        If an exhibit was rejected by the catalogue.
    """
    settings = MuseumSettings(
        scenario.objects, scenario.seed, photos_per_object=1, unknown_photos=scenario.unknown_photos
    )
    museum = museum_folder(folder, settings)
    workers = os.cpu_count() or 1
    generate_museum(museum, settings, workers=workers, progress=stage("generating the museum"))
    database = museum / "cloud.db"
    fill_catalogue(museum, database, stage("filling the catalogue"))
    profile = profile_machine(museum, scenario.seed, stage("profiling this machine"))
    visits = generate_visits(
        np.random.default_rng([scenario.seed, 1]),
        sections=scenario.sections,
        exhibits_per_section=scenario.exhibits_per_section,
        visitors=scenario.visitors,
    )
    (folder / "traces").mkdir(exist_ok=True)
    write_visits_csv(folder / "traces" / "visits.csv", visits)
    requests = plan_photos(visits, scenario)
    before = {
        visitor: [one for one in planned if one.time_ms < planned[0].time_ms + scenario.seconds * 1000]
        for visitor, planned in requests.items()
    }
    paths = [request.image_path for planned in requests.values() for request in planned]
    _take_photos(museum, settings, paths, workers, stage("rendering the photos"))
    traces, extended_traces = (
        write_traces(place, planned, np.random.default_rng([scenario.seed, 3]))
        for place, planned in ((folder / "traces", before), (folder / "traces" / "longer", requests))
    )
    return Material(museum, database, profile, traces, extended_traces)


def museum_folder(folder: Path, settings: MuseumSettings) -> Path:
    """Folder of a museum; its name states everything in which the museums of demos differ."""
    size = f"{settings.objects}-{settings.unknown_photos}"
    return folder / f"museum-{size}-seed{settings.seed}-v{VERSION}"


def plan_photos(visits: Sequence[Visit], scenario: Scenario) -> dict[str, tuple[PhotoRequest, ...]]:
    """Photo requests of each visitor: their exhibit once per second, sometimes an unknown object instead.

    Returns
    -------
    dict of str to tuple of PhotoRequest
        By visitor, in the order of time; paths are relative to the museum.
    """
    rng = np.random.default_rng([scenario.seed, 2])
    numbers = range(FIRST_VISIT_PHOTO, FIRST_VISIT_PHOTO + scenario.photos_per_exhibit)
    photos = {
        exhibit: [f"visits/{query_name(int(exhibit) - 1, number)}" for number in numbers]
        for exhibit in sorted({visit.exhibit for visit in visits})
    }
    unknown = [f"queries/{query_name(UNKNOWN_FROM + number, 0)}" for number in range(scenario.unknown_photos)]
    planned = {}
    for visitor, requests in photo_requests(visits, photos, rng).items():
        until_ms = requests[0].time_ms + (scenario.seconds + scenario.alone) * 1000
        kept = [request for request in requests if request.time_ms < until_ms]
        planned[visitor] = mix_in_unknown(kept, unknown, scenario.unknown_share, rng)
    return planned


def _take_photos(
    museum: Path, settings: MuseumSettings, paths: Iterable[str], workers: int, progress: Progress
) -> None:
    """Render the photos that do not exist yet, several exhibits at a time."""
    wanted: dict[int, list[int]] = {}
    for path in sorted(set(paths)):
        if path.startswith("visits/") and not (museum / path).exists():
            exhibit, number = Path(path).stem.split("_")
            wanted.setdefault(int(exhibit) - 1, []).append(int(number) - 1)
    (museum / "visits").mkdir(exist_ok=True)
    progress(0, len(wanted))
    photograph = partial(_photograph, museum / "visits", settings, wanted)
    for done, _ in enumerate(each_exhibit(photograph, list(wanted), workers), start=1):
        progress(done, len(wanted))


def _photograph(
    folder: Path, settings: MuseumSettings, wanted: Mapping[int, Sequence[int]], index: int
) -> None:
    for number, jpeg in render_photos(settings.seed, index, wanted[index], settings.difficulty):
        write_atomically(folder / query_name(index, number), jpeg)


def profile_machine(museum: Path, seed: int, progress: Callable[[int, int], None]) -> Path:
    """Measure f(k), recall(k) and precision(k) on the first exhibits of a museum; returns the profile's path.

    Parameters
    ----------
    museum : Path
        A generated museum with at least one photo of each exhibit.
    seed : int
        Seed of the random subsets.
    progress : callable
        Called with the steps done and their total.
    """
    pin_threads()
    settings = RecognitionSettings()
    dataset = _part_of(load_dataset(museum), _PROFILED_OBJECTS)
    largest = len(dataset.references)
    sizes = tuple(sorted({1, max(1, largest // 2), largest}))
    plan = ProfilingPlan(sizes, _SUBSETS, relevant=10, noise=10, seed=seed)
    total = len(dataset.references) + len(dataset.queries) + plan.steps
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        progress(done, total)

    (profile,), _ = analyse(dataset, settings, plan, lambda _stage, _steps: advance)
    path = museum / "profile.json"
    profile.save(path)
    return path


def _part_of(dataset: Dataset, count: int) -> Dataset:
    """The first ``count`` objects, their photos, and up to ``count`` photos of unknown objects."""
    references = dataset.references[:count]
    ids = {reference.object_id for reference in references}
    known = [query for query in dataset.queries if query.object_id in ids]
    unknown = [query for query in dataset.queries if query.object_id is None]
    return Dataset(dataset.name, references, (*known, *unknown[:count]))
