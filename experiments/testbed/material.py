"""What the parts of a sweep are made from: visits, the cloud's catalogue, a digest that tells of changes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xxhash

from nearsight.cloud.store import CatalogueStore
from nearsight.common.errors import ConfigurationError
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.testbed.campaign import replay_of
from nearsight.experiments.testbed.inventory import Inventory, ReplaySpec
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import objects_on_show, photos_by_object
from nearsight.experiments.traces.visits import Visit, read_visits_csv, write_visits_csv

_DATABASE = "database"


def visits_of(spec: ReplaySpec) -> tuple[Visit, ...]:
    """The visits of a trace, or generated ones; exhibits are objects of the data set.

    Raises
    ------
    InvalidArgument
        If the data set has fewer objects than there are exhibits.
    """
    visits = (
        generate_visits(
            np.random.default_rng(spec.seed),
            sections=spec.sections,
            exhibits_per_section=spec.exhibits,
            visitors=spec.population,
        )
        if spec.trace is None
        else read_visits_csv(spec.trace)
    )
    objects = objects_on_show(visits, photos_by_object(load_dataset(spec.photos)))
    return tuple(Visit(one.visitor, objects[one.exhibit], one.start_s, one.end_s) for one in visits)


def with_material(inventory: Inventory, visits: Sequence[Visit], folder: Path) -> Inventory:
    """The inventory of a part with its visits as a file, and as many classes in its catalogue as it says.

    Parameters
    ----------
    inventory : Inventory
        Of the part.
    visits : sequence of Visit
        From `visits_of`.
    folder : Path
        Where to write.

    Raises
    ------
    ConfigurationError
        If the catalogue has fewer objects, or more are on show.
    """
    spec = replay_of(inventory)
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "visits.csv"
    write_visits_csv(trace, visits)
    changed = inventory.model_copy(update={"replay": spec.model_copy(update={"trace": trace})})
    if not spec.classes:
        return changed
    database = folder / "catalogue.db"
    cut_catalogue(
        inventory.cloud.files[_DATABASE],
        database,
        catalogue=spec.catalogue,
        keep={visit.exhibit for visit in visits},
        classes=spec.classes,
    )
    cloud = changed.cloud.model_copy(update={"files": {**changed.cloud.files, _DATABASE: database}})
    return changed.model_copy(update={"cloud": cloud})


def cut_catalogue(source: Path, target: Path, *, catalogue: str, keep: set[str], classes: int) -> None:
    """Copy a database and leave only so many objects in a catalogue.

    Parameters
    ----------
    source, target : Path
        Databases of ``nearsight cloud``.
    catalogue : str
        Which.
    keep : set of str
        Objects that stay in any case.
    classes : int
        How many stay: after ``keep`` the first in the order of their ids.

    Raises
    ------
    ConfigurationError
        If there are fewer, or ``keep`` has more.
    """
    shutil.copy(source, target)
    with CatalogueStore(target, create=False) as store:
        known = sorted(one.object_id for one in store.objects(catalogue))
        if classes > len(known):
            raise ConfigurationError(
                f"{classes} classes: {source} has only {len(known)} objects", advice="ingest more of them"
            )
        kept = keep & set(known)
        if classes < len(kept):
            raise ConfigurationError(
                f"{classes} classes: {len(kept)} objects are on show",
                advice="fewer sections, or more classes",
            )
        others = [one for one in known if one not in keep]
        store.remove(catalogue, others[classes - len(kept) :])


def digest_of(inventory: Inventory) -> str:
    """Stands for the contents of all files of an inventory; photos count by their names and sizes."""
    hashed = xxhash.xxh3_64()
    specs = (inventory.cloud, *inventory.edges.values(), *inventory.devices.values())
    files = [file for spec in specs for _, file in sorted(spec.files.items())]
    replay = inventory.replay
    if replay is not None:
        files += [replay.trace] if replay.trace else []
        for path in sorted(replay.photos.rglob("*")):
            hashed.update(f"{path.relative_to(replay.photos)} {path.stat().st_size}\n".encode())
    for file in files:
        hashed.update(file.read_bytes())
    return hashed.hexdigest()
