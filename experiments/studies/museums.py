"""Data sets and visitors of studies: a given data set, or a generated museum that later runs use again.

The museums of all experiments are kept in one folder. An existing museum is used, and a partly generated one
is completed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from nearsight.experiments.datasets.dataset import Dataset, merge_datasets
from nearsight.experiments.datasets.loading import load_datasets
from nearsight.experiments.framework.experiment import Experiment, RunOptions
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.museum.generation import generate_museum, read_settings
from nearsight.experiments.museum.settings import VERSION, MuseumSettings
from nearsight.experiments.rig.session import Session
from nearsight.experiments.rig.tiers import fill_catalogue
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import photos_by_object
from nearsight.experiments.traces.visits import Visit

MUSEUM = MuseumSettings(objects=400, photos_per_object=2, unknown_photos=100)
SMOKE_MUSEUM = MuseumSettings(objects=12, photos_per_object=2, unknown_photos=2)
"""The same museum for all experiments, so that only the first run has to generate it."""

_FEW = 32
"""Largest museum that is generated in one process; starting more would take longer than generating it."""


def museum_of(options: RunOptions) -> MuseumSettings:
    """Settings of the museum of a run: 400 exhibits, as in the dissertation's 3.2; 12 in a smoke run."""
    return replace(SMOKE_MUSEUM if options.smoke else MUSEUM, seed=options.seed)


def dataset_of(options: RunOptions, settings: MuseumSettings) -> Dataset:
    """Return the data set of ``--data``, or else the museum of these settings, generated if necessary.

    Raises
    ------
    NotFound, InvalidArgument
        If the data set cannot be read.
    ConfigurationError
        If the museum cannot be written.
    """
    if options.data is not None:
        return merge_datasets(load_datasets(options.data), options.data.resolve().name)
    folder = museum_folder(options.museums, settings)
    if not (folder / "museum.json").is_file() or read_settings(folder) != settings:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workers = 1 if settings.objects <= _FEW else os.cpu_count() or 1
        generate_museum(folder, settings, workers=workers)
    return merge_datasets(load_datasets(folder), "generated museum")


class OnDataSet(Experiment):
    """An experiment on the data set of ``--data``, or else on a generated museum."""

    takes: ClassVar[tuple[str, ...]] = ("data",)

    def check(self, options: RunOptions) -> None:
        """The data set must be readable."""
        if options.data is not None:
            dataset_of(options, museum_of(options))


def museum_folder(museums: Path, settings: MuseumSettings) -> Path:
    """Folder of a museum; its name is derived from the settings."""
    counts = f"objects{settings.objects}-photos{settings.photos_per_object}-unknown{settings.unknown_photos}"
    return museums / f"{counts}-seed{settings.seed}-v{VERSION}"


@dataclass(frozen=True, slots=True)
class Walks:
    """Generated visits (dissertation, table 6.2 and 6.2.5)."""

    sections: int
    exhibits_per_section: int
    visitors: int

    def visits(self, rng: np.random.Generator) -> tuple[Visit, ...]:
        """Generate the visits of all visitors."""
        return generate_visits(
            rng,
            sections=self.sections,
            exhibits_per_section=self.exhibits_per_section,
            visitors=self.visitors,
        )


WALKS, SMOKE_WALKS = Walks(3, 44, 180), Walks(1, 10, 15)


class TaughtMuseum:
    """A museum whose exhibits are in the database of a cloud.

    Parameters
    ----------
    options : RunOptions
        Seed, and folder of the museums.
    settings : MuseumSettings
        The museum is generated and its catalogue trained if necessary.
    """

    def __init__(self, options: RunOptions, settings: MuseumSettings) -> None:
        self.dataset = dataset_of(options, settings)
        self.folder = museum_folder(options.museums, settings).resolve()
        self.database = self.folder / "cloud.db"
        """Folder of the museum, and database with the cloud's catalogue."""
        self.photos = photos_by_object(self.dataset)
        """Paths of the photos of each exhibit."""
        self.seed = options.seed
        fill_catalogue(self.folder, self.database)

    def testbed(self, name: str) -> Path:
        """Folder for the logs of an experiment's daemons."""
        return self.folder.parent.parent / "testbed" / name

    def session(
        self,
        folder: Path,
        visits: Sequence[Visit],
        following: Following,
        network: LinkShape,
        rng: np.random.Generator,
        traces: str = "traces",
    ) -> Session:
        """Create a session in which four fifths of the visitors teach the edge and some others have devices.

        Parameters
        ----------
        folder : Path
            Folder for logs; its subfolder ``traces`` gets the traces of the devices.
        visits : sequence of Visit
            Visits of all visitors.
        following : Following
            Number of devices, length of the replay and share of unknown photos.
        network : LinkShape
            Link to the cloud.
        rng : Generator
            Divides the visitors, chooses those with devices, and draws their photos.
        traces : str
            Name of the subfolder for traces.
        """
        crowd = Crowd.divided(visits, rng)
        objects = crowd.mapped(list(self.photos))
        unknown = [str(query.path) for query in self.dataset.queries if query.object_id is None]
        planned = follow(crowd, following, objects, self.photos, unknown, rng)
        return Session(
            folder,
            self.database,
            write_traces(folder / traces, planned, rng),
            tuple(crowd.transitions(objects)),
            network,
            self.seed,
        )
