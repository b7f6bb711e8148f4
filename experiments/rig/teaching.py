"""Teaching a catalogue for the cloud of a testbed, as ``nearsight cloud ingest`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nearsight.cloud.access import DatabaseCatalogue
from nearsight.cloud.ingestion import ingest_folder
from nearsight.cloud.settings import CloudSettings
from nearsight.cloud.store import CatalogueStore
from nearsight.cloud.training import ObjectTrainer
from nearsight.common.errors import InternalError
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.experiments.rig.tiers import CATALOGUE

Progress = Callable[[int, int], None]


def teach_catalogue(museum: Path, database: Path, *, threads: int, progress: Progress) -> None:
    """Learn all exhibits of a museum; those that are known already are passed over.

    Raises
    ------
    InternalError
        If an exhibit could not be learnt.
    """
    pin_threads()
    settings = CloudSettings(database=database)
    with CatalogueStore(database, create=True) as store:
        catalogue = DatabaseCatalogue(store, CATALOGUE, ObjectTrainer(settings.recognition))
        report = ingest_folder(museum, catalogue, threads=threads, progress=progress)
    if report.interrupted:
        raise KeyboardInterrupt
    if report.rejected:
        raise InternalError(
            f"{len(report.rejected)} of {report.total} exhibits could not be learnt; "
            f"{report.problems[0].object_id}: {report.problems[0].reason}"
        )
