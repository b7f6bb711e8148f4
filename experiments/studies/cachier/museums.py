"""The data set of an experiment: one that a person named, or a generated museum that is kept for the next.

Museums go into one folder for all experiments; one that is there, complete or half painted, is used.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from nearsight.experiments.datasets.dataset import Dataset, merge_datasets
from nearsight.experiments.datasets.loading import load_datasets
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.museum.generation import generate_museum, read_settings
from nearsight.experiments.museum.settings import VERSION, MuseumSettings

MUSEUM = MuseumSettings(objects=400, photos_per_object=2, unknown_photos=100)
SMOKE_MUSEUM = MuseumSettings(objects=12, photos_per_object=2, unknown_photos=2)
"""The same for all experiments: whichever runs first paints it for the others."""

_FEW = 32
"""Exhibits that are painted before other processes have even started."""


def museum_of(options: RunOptions) -> MuseumSettings:
    """The museum of a run: 400 exhibits as in the dissertation, a dozen in a smoke run."""
    return replace(SMOKE_MUSEUM if options.smoke else MUSEUM, seed=options.seed)


def dataset_of(options: RunOptions, settings: MuseumSettings) -> Dataset:
    """What ``--data`` names; without it the museum of these settings, generated if need be.

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


def museum_folder(museums: Path, settings: MuseumSettings) -> Path:
    """Where a museum is kept; its name tells what it is."""
    counts = f"objects{settings.objects}-photos{settings.photos_per_object}-unknown{settings.unknown_photos}"
    return museums / f"{counts}-seed{settings.seed}-v{VERSION}"
