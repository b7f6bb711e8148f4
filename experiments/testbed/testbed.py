"""Controls a testbed from its inventory: brings it up, queries its status, takes it down completely.

Daemons outlive the command that started them. The steps of ``up`` are in `building`; devices are started by
``run``.
"""

from __future__ import annotations

import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import NearsightError, SetupError, Unavailable
from nearsight.experiments.framework.signals import handled, termination_as_interrupt
from nearsight.experiments.rig.agent import MARK
from nearsight.experiments.rig.processes import DaemonState
from nearsight.experiments.testbed.building import Builder, OnStage
from nearsight.experiments.testbed.inventory import Host, Inventory
from nearsight.experiments.testbed.node_network import remove_network
from nearsight.experiments.testbed.nodes import Node, Nodes
from nearsight.experiments.testbed.state import (
    LOCK_FILE,
    RUN_LOCK_FILE,
    STATE_FILE,
    TestbedState,
    load_state,
    locked,
)

_PURGE = (
    '[ -e "$1/agent.py" ] || exit 0; '
    f'for other in "$1"/*/{MARK}; do [ ! -e "$other" ] || exit 0; done; '
    'rm -rf "$1/venv" "$1/agent.py" "$1"/nearsight-*.whl && { echo removed; rmdir "$1" 2>/dev/null || true; }'
)
"""Removes the installation in a folder, if nearsight created it and no other testbed uses it; then the
folder, if it is empty."""
_CREATED_FOLDERS = ("nodes", "keys", "material", "wheel")
"""Folders that a testbed creates in its folder."""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """Status of a host."""

    host: Host
    """The host."""
    daemons: Mapping[str, DaemonState]
    """Daemons that run there, or should run there."""
    error: str = ""
    """Why it does not answer; empty if it does."""


def bring_up(
    inventory: Inventory,
    folder: Path,
    *,
    on_stage: OnStage = lambda _stage: None,
    keep: bool = False,
    of_run: bool = False,
) -> TestbedState:
    """Build a testbed. If that fails or is interrupted, the testbed is taken down again.

    Parameters
    ----------
    inventory : Inventory
        The testbed to build.
    folder : Path
        Folder for its state, keys and logs.
    on_stage : callable
        Called with a description of the next step.
    keep : bool
        After a failure, keep everything for inspection; `take_down` removes it.
    of_run : bool
        Whether the caller is a run that holds the folder's `RUN_LOCK_FILE`. It then first removes what a
        killed run left there, which no other command does.

    Raises
    ------
    SetupError
        If a testbed is up in this folder, or something could not be started.
    Unavailable
        If the remains of a killed run on a node cannot be removed.
    """
    with locked(folder), termination_as_interrupt():
        left = load_state(folder)
        if left is not None and left.of_run and of_run:
            on_stage("removing the remains of a killed run")
            _remove(left, folder, purge=False)
        elif left is not None:
            of_whom = "the testbed of a run" if left.of_run else "a testbed"
            raise SetupError(
                f"{of_whom} is up in {folder}, or was not removed completely",
                advice=f"remove it with: {command_line('down', folder)}",
            )
        shutil.rmtree(folder / "nodes", ignore_errors=True)
        state = TestbedState(inventory, of_run)
        state.save(folder)
        try:
            with Nodes(state, folder) as nodes:
                Builder(state, folder, nodes, on_stage).build()
        except BaseException:  # Ctrl-C as well
            if not keep:
                # Everything that cannot be removed now is still in the state; the first error is raised.
                with suppress(Unavailable):
                    _remove(state, folder, purge=False)
            raise
        return state


def status(state: TestbedState, folder: Path) -> tuple[HostStatus, ...]:
    """Query the daemons of every node; for a node that does not answer, the status has the error."""

    def ask(node: Node) -> HostStatus:
        try:
            return HostStatus(node.host, node.states())
        except NearsightError as error:
            return HostStatus(node.host, {}, str(error))

    with Nodes(state, folder) as nodes:
        return tuple(nodes.each(ask))


def take_down(folder: Path, *, purge: bool = False) -> bool:
    """Stop and remove a testbed, also the remains after a crash; logs stay in the folder.

    Parameters
    ----------
    folder : Path
        Folder of the testbed.
    purge : bool
        Also remove the logs, and the installations on SSH nodes.

    Returns
    -------
    bool
        Whether there was one.

    Raises
    ------
    Unavailable
        If a node cannot be reached; everything else is removed, and the next call tries again.
    """
    if not folder.is_dir():
        return False
    with locked(folder):
        state = load_state(folder)
        if state is None:
            return False
        _remove(state, folder, purge=purge)
        return True


def clear_nodes(inventory: Inventory, folder: Path) -> tuple[str, ...]:
    """Remove remains when no testbed is up: the logs here, and installations on SSH nodes.

    Returns
    -------
    tuple of str
        Descriptions of what was removed on nodes.

    Raises
    ------
    Unavailable
        If a node cannot be reached.
    """
    with locked(folder):
        with Nodes(TestbedState(inventory), folder) as nodes:
            remote = [node for node in nodes.by_name.values() if node.host.spec.kind == "ssh"]
            cleared = [text for text in nodes.each(_purge, remote) if text]
        _clear_folder(folder)
    return tuple(cleared)


def command_line(command: str, state: Path | None, inventory: Path = Path("INVENTORY.toml")) -> str:
    """A command ``nearsight testbed`` for messages, for a shell.

    ``down`` finds a testbed that is up by its folder ``state``, and then does not read the inventory.
    """
    folder = [] if state is None else ["--state", str(state)]
    return shlex.join(["nearsight", "testbed", command, str(inventory), *folder])


def _purge(node: Node) -> str:
    """Remove the installation on an SSH node; returns its description, or empty if nothing was removed."""
    place = node.host.spec.folder
    return f"{place} on {node.host.name}" if node.shell.run(["sh", "-c", _PURGE, "sh", place]) else ""


def _clear_folder(folder: Path) -> None:
    """Remove all files of a testbed from its folder, and the folder if no other files are in it."""
    for name in _CREATED_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (STATE_FILE, LOCK_FILE, RUN_LOCK_FILE):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _remove(state: TestbedState, folder: Path, *, purge: bool) -> None:
    with handled(signal.SIG_IGN, signal.SIGINT):  # a second Ctrl-C must not interrupt the removal
        with Nodes(state, folder) as nodes:
            failures = [text for text in nodes.each(lambda node: _clear(node, folder, purge)) if text]
        remove_network(state.testbed_id)
    if failures and state.prepared:
        raise Unavailable(
            "; ".join(failures),
            advice=f"run `{command_line('down', folder)}` again when the node can be reached",
        )
    (folder / STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / "keys", ignore_errors=True)
    if purge:
        _clear_folder(folder)


def _clear(node: Node, folder: Path, purge: bool) -> str:
    """Stop and remove everything of one node; returns the reason of a failure, or empty."""
    try:
        with suppress(SetupError):  # on a full disk, the existing agent is used; a refused folder has none
            node.bring_agent()
        names = list(node.states())
        node.stop([name for name in names if not name.startswith(("cloud", "edge-", "link-"))], grace_s=2.0)
        node.stop()
        if node.host.spec.kind == "ssh":
            collect_logs(node, names, folder)
        node.shell.run(["rm", "-rf", node.path("keys")])
        node.remove(files=node.host.spec.kind == "ssh")
        if purge and node.host.spec.kind == "ssh":
            _purge(node)
    except (Unavailable, SetupError) as error:
        return str(error)
    return ""


def collect_logs(node: Node, names: Sequence[str], folder: Path) -> None:
    """Copy the logs of a node into the testbed's folder here.

    Raises
    ------
    SetupError
        If the folder for them is a link to a place outside the testbed's.
    """
    home = folder.resolve() / "nodes" / node.host.name
    if home.resolve() != home:
        raise SetupError(f"{home} is a link to another place", advice="remove it, and give the command again")
    for name in names:
        node.shell.get(node.path(f"{name}.log"), home / f"{name}.log")
