"""Replays on a testbed: one command brings it up for each cell, replays, collects the rows, takes it down.

What was measured is kept cell by cell, and only if it is whole: nothing died, every request got exactly one
outcome. So a sweep that was cut off goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nearsight.common.errors import ConfigurationError, NearsightError
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.rig.rows import RequestRow, write_rows
from nearsight.experiments.testbed.all_nodes import opened
from nearsight.experiments.testbed.building import OnStage
from nearsight.experiments.testbed.campaign import (
    Cell,
    cells,
    fingerprint,
    inventory_of,
    replay_of,
    visitors_of,
)
from nearsight.experiments.testbed.deployment import find_wheel
from nearsight.experiments.testbed.inventory import Inventory
from nearsight.experiments.testbed.material import visits_of, with_material
from nearsight.experiments.testbed.replaying import Part, Replay
from nearsight.experiments.testbed.state import RUN_LOCK_FILE, locked
from nearsight.experiments.testbed.summary import FACTS, ROWS
from nearsight.experiments.testbed.testbed import bring_up, take_down


def forget(whole: Sequence[Cell], out: Path) -> None:
    """Remove what was measured of these cells."""
    for cell in whole:
        shutil.rmtree(out / cell.name, ignore_errors=True)


def missing(inventory: Inventory, out: Path, contents: str) -> list[Cell]:
    """The cells that are still to be measured; ``contents`` is the digest of the inventory's files.

    Raises
    ------
    ConfigurationError
        If the folder holds cells of another inventory.
    """
    found = []
    for cell in cells(inventory):
        path = out / cell.name / FACTS
        if not path.exists():
            found.append(cell)
        elif json.loads(path.read_text())["fingerprint"] != fingerprint(inventory, cell, contents):
            raise ConfigurationError(
                f"{out / cell.name} was measured with another inventory",
                advice="--fresh replaces it, --out takes another folder",
            )
    return found


def with_wheel(inventory: Inventory, state_folder: Path) -> Inventory:
    """The inventory with a wheel for its SSH nodes: built once, not for every cell."""
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
    """Find out what cannot be measured before hours are spent on the rest.

    Raises
    ------
    NearsightError
        If a point has too few visitors, objects or classes for the last of its runs.
    """
    last = {cell.point: cell for cell in whole}
    with tempfile.TemporaryDirectory() as scratch:
        for cell in last.values():
            _part(inventory, cell, Path(scratch))


def run_cell(
    inventory: Inventory, cell: Cell, state_folder: Path, out: Path, contents: str, on_stage: OnStage
) -> None:
    """Measure one cell and keep it.

    Raises
    ------
    NearsightError
        If anything is not as it must be; nothing is kept then, and the testbed is down.
    """
    part = _part(inventory, cell, state_folder / "material")
    with locked(state_folder, RUN_LOCK_FILE), termination_as_interrupt():
        state = bring_up(part.inventory, state_folder, on_stage=on_stage, of_run=True)
        try:
            with opened(state, state_folder) as nodes, tempfile.TemporaryDirectory() as scratch:
                replay = Replay(state, nodes, cell, part, Path(scratch), on_stage)
                rows, facts = replay.play()
        except BaseException:  # Ctrl-C as well
            # What cannot be removed now is in the state, for the next run; the first error says why.
            with suppress(NearsightError):
                take_down(state_folder)
            raise
        take_down(state_folder)
    _keep(out / cell.name, rows, {**facts, "fingerprint": fingerprint(inventory, cell, contents)})


def _keep(folder: Path, rows: Sequence[RequestRow], facts: Mapping[str, object]) -> None:
    """Write a cell in one step: a folder that exists is whole."""
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_rows(partial / ROWS, rows)
    (partial / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
