"""Trains object models of the references of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import train_object
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings


def train_references(
    references: Iterable[Reference], settings: RecognitionSettings, progress: Callable[[int], None]
) -> tuple[tuple[ObjectModel, ...], dict[str, InvalidArgument]]:
    """Train all objects that can be trained.

    Parameters
    ----------
    references : iterable of Reference
        The objects.
    settings : RecognitionSettings
        The pipeline.
    progress : callable
        Called with 1 after each object.

    Returns
    -------
    models : tuple of ObjectModel
        In the order of the references.
    failures : dict of str to InvalidArgument
        The error of each object that cannot be trained, by object id.
    """
    models: list[ObjectModel] = []
    failures: dict[str, InvalidArgument] = {}
    for one in references:
        try:
            models.append(train_object(one.object_id, one.label, one.paths, settings))
        except InvalidArgument as error:
            failures[one.object_id] = error
        progress(1)
    return tuple(models), failures


def train_all(references: Iterable[Reference], settings: RecognitionSettings) -> tuple[ObjectModel, ...]:
    """Train objects, all of which are needed; the models are in the order of the references.

    Raises
    ------
    InvalidArgument
        The first error, if an object cannot be trained.
    """
    return tuple(train_object(one.object_id, one.label, one.paths, settings) for one in references)
