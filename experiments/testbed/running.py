"""Measures the cells of a sweep: one command brings up a testbed for each cell, replays, and collects rows.

Results are stored cell by cell, and only if they are complete: no process ended early, and every request got
exactly one outcome. The same command therefore continues an interrupted sweep. A cell's material (its visits
and the cloud's catalogue) is created anew for each cell; a digest detects changed files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import xxhash

from nearsight.cloud.settings import CloudSettings
from nearsight.common.catalogue.schema import FORMAT
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.command_line.options import flag_overrides
from nearsight.common.config.base import FLAG_ORIGIN, DaemonSettings, load_settings
from nearsight.common.database.files import copy_database
from nearsight.common.database.places import log_of
from nearsight.common.errors import ConfigurationError
from nearsight.device.settings import DeviceSettings
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.rig.rows import RequestRow, write_rows
from nearsight.experiments.rig.sequence import run_session
from nearsight.experiments.rig.tiers import NO_CONFIG, assignments
from nearsight.experiments.testbed.building import DATABASE, OnStage
from nearsight.experiments.testbed.campaign import (
    Cell,
    cells,
    fingerprint,
    inventory_of,
    replay_of,
    visitors_of,
)
from nearsight.experiments.testbed.deployment import find_wheel
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory, ReplaySpec
from nearsight.experiments.testbed.replaying import Part, Replay
from nearsight.experiments.testbed.state import RUN_LOCK_FILE, locked
from nearsight.experiments.testbed.summary import FACTS, ROWS
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import objects_on_show, photos_by_object
from nearsight.experiments.traces.visits import Visit, read_visits_csv, write_visits_csv

_SETTINGS: Mapping[str, tuple[type[DaemonSettings], str]] = {
    "cloud": (CloudSettings, "cloud"),
    "edges": (EdgeSettings, "edge"),
    "devices": (DeviceSettings, "device"),
}
"""Settings of the daemons of a kind of table, and their section in a configuration file."""


def remove_results(whole: Sequence[Cell], out: Path) -> None:
    """Remove the results of these cells."""
    for cell in whole:
        shutil.rmtree(out / cell.name, ignore_errors=True)


def missing(inventory: Inventory, out: Path, contents: str) -> list[Cell]:
    """The cells that are not measured yet; ``contents`` is the digest of the inventory's files.

    Raises
    ------
    ConfigurationError
        If the folder has cells of another inventory or version, or a damaged cell.
    """
    found = []
    for cell in cells(inventory):
        path = out / cell.name / FACTS
        if not path.exists():
            found.append(cell)
        elif _kept_fingerprint(path) != fingerprint(inventory, cell, contents):
            raise ConfigurationError(
                f"{out / cell.name} was measured with another inventory or version, or is damaged",
                advice="remove it to measure it again; --fresh replaces all, --out takes another folder",
            )
    return found


def _kept_fingerprint(path: Path) -> str:
    """Fingerprint in a cell's facts; empty if there is none."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(path.read_text())["fingerprint"])
    return ""


def with_wheel(inventory: Inventory, state_folder: Path) -> Inventory:
    """The inventory with a wheel for its SSH nodes, so that it is built once and not for every cell."""
    if inventory.wheel or not any(node.kind == "ssh" for node in inventory.nodes.values()):
        return inventory
    return inventory.model_copy(update={"wheel": find_wheel(None, state_folder)})


def _part(inventory: Inventory, cell: Cell, folder: Path) -> Part:
    changed = inventory_of(inventory, cell)
    visits = visits_of(replay_of(changed))
    changed = with_material(changed, visits, folder)
    everybody = tuple(dict.fromkeys(visit.visitor for visit in visits))
    replaying = everybody[: max(0, len(everybody) - replay_of(changed).warm_up)]
    earlier = (visit for visit in visits if visit.visitor not in replaying)
    return Part(
        changed,
        visitors_of(changed, cell.run, replaying),
        tuple(sorted(earlier, key=lambda visit: visit.start_s)),
    )


def check(inventory: Inventory, whole: Sequence[Cell]) -> None:
    """Check all points before the sweep, which takes hours.

    Raises
    ------
    NearsightError
        If a configuration has a wrong setting, or a point has too few visitors, objects or classes for the
        last of its runs.
    """
    of_configurations = {cell.configuration: cell for cell in whole}
    last = {cell.point: cell for cell in whole}
    with tempfile.TemporaryDirectory() as scratch:
        for name, cell in of_configurations.items():
            _check_settings(inventory_of(inventory, cell), name, Path(scratch))
        for cell in last.values():
            _part(inventory, cell, Path(scratch) / "material")


def _check_settings(inventory: Inventory, configuration: str, scratch: Path) -> None:
    """Load the settings of all daemons and devices of one configuration, as they will."""
    for where, spec in inventory.tables().items():
        settings_class, section = _SETTINGS[where.partition(".")[0]]
        given: dict[str, object] = {**spec.settings, **spec.files}
        if isinstance(spec, DeviceSpec) and spec.shares and inventory.needs_keys:
            given["recognizer.peers.allowed"] = scratch
        overrides = flag_overrides(assignments(given)[1::2])
        try:
            load_settings(settings_class, section, Path(NO_CONFIG), overrides, environment=False)
        except ConfigurationError as error:
            problem = error.message.removeprefix(f"{FLAG_ORIGIN}: ")
            raise ConfigurationError(
                f"configuration {configuration!r}, settings of {where}: {problem}", advice=error.advice
            ) from error


def run_cell(
    inventory: Inventory, cell: Cell, state_folder: Path, out: Path, contents: str, on_stage: OnStage
) -> None:
    """Measure one cell and store its results.

    Raises
    ------
    NearsightError
        If any step up to the collection of the rows fails; then nothing is stored, and the testbed is down,
        except for nodes that cannot be reached.
    """
    with locked(state_folder, RUN_LOCK_FILE):
        part = _part(inventory, cell, state_folder / "material")
        rows, facts = run_session(Replay(cell, part, state_folder, on_stage))
    _keep(out / cell.name, rows, {**facts, "fingerprint": fingerprint(inventory, cell, contents)})


def _keep(folder: Path, rows: Sequence[RequestRow], facts: Mapping[str, object]) -> None:
    """Write a cell atomically: an existing folder is complete."""
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_rows(partial / ROWS, rows)
    (partial / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def visits_of(spec: ReplaySpec) -> tuple[Visit, ...]:
    """The visits of a trace, or generated ones; exhibits are replaced by objects of the data set.

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
    """The inventory of a cell with its visits (`visits_of`) and a catalogue of ``replay.classes`` objects.

    Both files are written to ``folder``, from which those of an earlier cell are removed.

    Raises
    ------
    ConfigurationError
        If the catalogue has fewer objects, or more are on show.
    """
    spec = replay_of(inventory)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trace = folder / "visits.csv"
    write_visits_csv(trace, visits)
    changed = inventory.model_copy(update={"replay": spec.model_copy(update={"trace": trace})})
    if not spec.classes:
        return changed
    database = folder / "catalogue.db"
    cut_catalogue(
        inventory.cloud.files[DATABASE],
        database,
        catalogue=spec.catalogue,
        keep={visit.exhibit for visit in visits},
        classes=spec.classes,
    )
    cloud = changed.cloud.model_copy(update={"files": {**changed.cloud.files, DATABASE: database}})
    return changed.model_copy(update={"cloud": cloud})


def cut_catalogue(source: Path, target: Path, *, catalogue: str, keep: set[str], classes: int) -> None:
    """Copy a database and keep only ``classes`` objects of a catalogue.

    Parameters
    ----------
    source, target : Path
        Databases of ``nearsight cloud``.
    catalogue : str
        Name of the catalogue.
    keep : set of str
        Objects that are kept in any case.
    classes : int
        Number of objects to keep: those of ``keep``, then the first in the order of their ids.

    Raises
    ------
    ConfigurationError
        If there are fewer objects, or ``keep`` has more.
    """
    copy_database(source, target, FORMAT)
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
    """Digest of the contents of all files of an inventory, of the photos and of the objects in them.

    A wheel counts only if the inventory names it: others are built anew for each run.
    """
    hashed = xxhash.xxh3_64()
    files = [file for spec in inventory.tables().values() for _, file in sorted(spec.files.items())]
    files += [log for file in files if (log := log_of(file)).exists()]
    files += [inventory.wheel] if inventory.wheel else []
    replay = inventory.replay
    if replay is not None:
        files += [replay.trace] if replay.trace else []
        for query in load_dataset(replay.photos).queries:
            hashed.update(os.fsencode(f"{query.path.name}\0{query.object_id or ''}\0"))
            files.append(query.path)
    for file in files:
        hashed.update(file.read_bytes())
    return hashed.hexdigest()
