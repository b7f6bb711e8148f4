"""The command ``nearsight testbed``: up, status, down, run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearsight.common.command_line.options import JsonOption
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.common.errors import MissingDependency, NotFound, Unavailable
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearsight.experiments.testbed.campaign import Cell
    from nearsight.experiments.testbed.inventory import Inventory
    from nearsight.experiments.testbed.state import TestbedState
    from nearsight.experiments.testbed.summary import PartSummary
    from nearsight.experiments.testbed.testbed import HostStatus

app = typer.Typer(no_args_is_help=True)
_RESULTS = Path("results/testbed")

InventoryArgument = Annotated[
    Path, typer.Argument(metavar="INVENTORY.toml", help="Nodes, daemons and links; see docs/testbed.md.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        file_okay=False,
        help="Folder for state and logs. Default: INVENTORY.testbed.",
    ),
]


@app.callback()
def testbed() -> None:
    """Daemons on processes, namespaces and lab machines, with shaped links, from one inventory file."""
    require_experiments("testbed", ("psutil", "pyroute2"))


def state_folder(inventory: Path, given: Path | None) -> Path:
    """Folder of a testbed's state."""
    return given or inventory.with_suffix(".testbed")


@app.command()
def up(
    inventory: InventoryArgument,
    state: StateOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="After a failure, keep everything for inspection.")
    ] = False,
) -> None:
    """Start the daemons and links of an inventory; they run until `nearsight testbed down`."""
    from nearsight.experiments.testbed.reading import read_inventory
    from nearsight.experiments.testbed.testbed import bring_up, command_line

    folder = state_folder(inventory, state)
    built = bring_up(
        read_inventory(inventory),
        folder,
        on_stage=lambda stage: print_line(f"… {stage}", err=True),
        keep=keep,
    )
    print_table(
        ("host", "daemon", "endpoint", "link: requested", "kernel's part", "error"),
        [(one.host, one.name, one.endpoint, *_link_words(one.calibration)) for one in built.daemons],
        keys=2,
    )
    if any(one.calibration and not one.calibration["within_target"] for one in built.daemons):
        print_line(
            "OFF: the link differs from the request, as on a busy machine; `down` and `up` calibrate it again"
        )
    print_line(f"State and logs: {folder}; stop it with: {command_line('down', state, inventory)}")


@app.command()
def status(inventory: InventoryArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Print the state of every node and daemon; exit code 0 only if all run."""
    from nearsight.experiments.testbed.state import load_state
    from nearsight.experiments.testbed.testbed import command_line
    from nearsight.experiments.testbed.testbed import status as ask

    folder = state_folder(inventory, state)
    found = load_state(folder)
    if found is None:
        raise NotFound(
            f"no testbed is up in {folder}",
            advice=f"start it with: {command_line('up', state, inventory)}",
        )
    hosts = ask(found, folder)
    troubles = _troubles(found, hosts)
    if as_json:
        print_json(_as_json(found, hosts, troubles))
    else:
        _print_status(found, hosts)
    if troubles:
        raise Unavailable("; ".join(troubles), advice=f"logs are in {folder}/nodes")


@app.command()
def down(
    inventory: InventoryArgument,
    state: StateOption = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove logs, and installations on SSH nodes.")
    ] = False,
) -> None:
    """Stop and remove everything that belongs to a testbed, also after a crash."""
    from nearsight.experiments.testbed.reading import read_inventory
    from nearsight.experiments.testbed.testbed import clear_nodes, take_down

    folder = state_folder(inventory, state)
    if take_down(folder, purge=purge):
        print_line("down" if purge else f"down; logs are in {folder}/nodes")
        return
    if not inventory.exists() and not folder.is_dir():
        raise NotFound(f"there is no inventory {inventory} and no folder {folder}", advice="check the path")
    print_line(f"no testbed is up in {folder}")
    if purge:
        cleared = clear_nodes(read_inventory(inventory), folder)
        print_line("removed " + ", ".join([*cleared, f"the testbed's files in {folder}"]))


@app.command()
def run(
    inventory: InventoryArgument,
    state: StateOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", file_okay=False, help=f"Folder for results. Default: {_RESULTS}/NAME."
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure all parts again, also finished ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay visitors in every configuration, at every point of the sweep and in every run; collect rows.

    Each part gets a new testbed. To continue an interrupted sweep, run the same command again, without
    --fresh.
    """
    from nearsight.common.folder_lock import locked
    from nearsight.experiments.framework.cell_progress import cell_progress
    from nearsight.experiments.testbed.campaign import cells
    from nearsight.experiments.testbed.reading import read_inventory
    from nearsight.experiments.testbed.running import (
        check,
        digest_of,
        missing,
        remove_results,
        run_cell,
        with_wheel,
    )

    found = read_inventory(inventory)
    folder, state_in = out or _RESULTS / inventory.stem, state_folder(inventory, state)
    whole = cells(found)
    check(found, whole)
    contents = digest_of(found)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        if fresh:
            remove_results(whole, folder)
        todo = missing(found, folder, contents)
        TemporaryFile(dir=folder).close()  # an unwritable folder fails before the measurement, not after it
        ready = with_wheel(found, state_in) if todo else found
        with cell_progress(inventory.stem, len(whole), len(whole) - len(todo), fresh=fresh) as progress:
            for cell in todo:
                progress.begin(cell.name)
                run_cell(ready, cell, state_in, folder, contents, progress.stage)
                progress.finish()
        _show_results(whole, folder, found, as_json)


def _show_results(cells: Sequence[Cell], folder: Path, inventory: Inventory, as_json: bool) -> None:
    from dataclasses import asdict

    from nearsight.common.files import write_json
    from nearsight.experiments.testbed.campaign import baseline_of, replay_of
    from nearsight.experiments.testbed.summary import notes, summarise_sweep, tables

    parts = summarise_sweep(cells, folder, replay_of(inventory).timeout_s)
    write_json(folder / "summary.json", [asdict(part) for part in parts])
    if as_json:
        print_json([asdict(part) for part in parts])
        return
    for one in tables(parts):
        print_table(one.columns, one.rows, title=one.title, right=one.columns[2:], whole=one.columns[:2])
    for note in notes(parts):
        print_line(note)
    picture = _draw(parts, folder, baseline_of(inventory))
    print_line(f"Results: {folder}/summary.json{picture}; the rows are in its sub-folders")


def _draw(parts: Sequence[PartSummary], folder: Path, baseline: Mapping[str, int]) -> str:
    """Name of the picture; empty if matplotlib is not installed."""
    try:
        require_experiments("testbed run", ("matplotlib",))
    except MissingDependency as error:
        print_line(f"no picture: {error}", err=True)
        return ""
    from nearsight.experiments.testbed.summary import draw

    return f", {draw(parts, folder / 'summary.png', baseline).name}"


def _link_words(calibration: dict[str, Any] | None) -> tuple[str, str, str]:
    from nearsight.experiments.links.link import LinkShape, in_words

    if calibration is None:
        return "", "", ""
    asked, kernel = (in_words(LinkShape(**calibration[name])) for name in ("asked", "kernel"))
    errors = (
        f"{calibration['rtt_error_ms']:+.2f} ms, "
        f"{calibration['up_error_percent']:+.1f} % {calibration['down_error_percent']:+.1f} %"
    )
    return asked, kernel, errors if calibration["within_target"] else f"{errors}: OFF"


def _troubles(state: TestbedState, hosts: tuple[HostStatus, ...]) -> list[str]:
    troubles = [one.error for one in hosts if one.error]
    found = {one.host.name: one.daemons for one in hosts if not one.error}
    for daemon in state.daemons:
        if daemon.host in found:
            now = found[daemon.host].get(daemon.name)
            if now is None or not now.running:
                log = now.log if now else "no log"
                troubles.append(f"{daemon.name} on {daemon.host} is not running: {log}")
    if not state.complete:
        troubles.append("`up` did not finish")
    return troubles


def _as_json(state: TestbedState, hosts: tuple[HostStatus, ...], troubles: list[str]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "complete": state.complete,
        "daemons": [asdict(daemon) for daemon in state.daemons],
        "hosts": {
            one.host.name: {
                "kind": one.host.spec.kind,
                "address": one.host.address,
                "error": one.error,
                "daemons": {name: asdict(daemon) for name, daemon in one.daemons.items()},
            }
            for one in hosts
        },
        "troubles": troubles,
    }


def _print_status(state: TestbedState, hosts: tuple[HostStatus, ...]) -> None:
    endpoints = {(daemon.host, daemon.name): daemon.endpoint for daemon in state.daemons}
    servers = {daemon.host for daemon in state.daemons}
    rows: list[tuple[object, ...]] = []
    for one in hosts:
        host, node = one.host.name, (one.host.spec.kind, one.host.address)
        if one.error or not one.daemons:
            idle = "nothing runs" if host in servers else "ready for devices"
            rows.append((host, "", "UNREACHABLE" if one.error else idle, "", *node, "", ""))
        for name, daemon in one.daemons.items():
            how = "runs" if daemon.running else "ENDED"
            used = (f"{daemon.cpu_s:.1f} s", f"{daemon.memory_bytes / 2**20:.0f} MiB")
            rows.append((host, name, how, endpoints.get((host, name), ""), *node, *used))
    print_table(
        ("host", "daemon", "state", "endpoint", "kind", "address", "CPU", "memory"),
        rows,
        right=("CPU", "memory"),
        keys=2,
    )
