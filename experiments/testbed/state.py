"""The state of a testbed in a file, so that other commands can query and stop it, also after a crash.

The file is written before anything is created and contains all names, so that everything that a crash leaves
can be found and removed.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from nearsight.common.errors import CorruptStore, SetupError
from nearsight.common.files import write_json
from nearsight.experiments.testbed.inventory import DaemonName, Inventory

STATE_FILE = "testbed.json"
LOCK_FILE = "lock"
_LINK = "link-to-"
RUN_LOCK_FILE = "run.lock"
"""Locked by a run while its testbed is up. A run's testbed without a locked file was left by a killed run."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon or link that should run."""

    host: str
    """Host on which it runs."""
    name: DaemonName
    """Name on its host: "cloud", "edge-NAME", "link-to-SERVER"."""
    endpoint: str
    """Endpoint for clients on other hosts; of a link, for those on its own host."""
    metrics: str = ""
    """Address of its metrics; empty: none."""
    calibration: dict[str, Any] | None = None
    """A link's calibration: the requested shape and the measured one; None for servers."""

    @property
    def leads_to(self) -> str:
        """The server of a link; empty for servers themselves."""
        return self.name.removeprefix(_LINK) if self.name.startswith(_LINK) else ""


@dataclass(slots=True)
class TestbedState:
    """A testbed between two commands."""

    __test__ = False  # for pytest: no test

    inventory: Inventory
    """The inventory at the time of creation."""
    of_run: bool = False
    """Whether a run created it for one cell and takes it down; False: it stays until ``down``."""
    testbed_id: str = field(default_factory=lambda: secrets.token_hex(3))
    """Part of all names that the testbed creates outside its folder."""
    prepared: bool = False
    """Whether all nodes passed their checks; no daemon runs anywhere before."""
    complete: bool = False
    """Whether ``up`` has finished."""
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts about each host, by name."""
    keys: dict[str, str] = field(default_factory=dict)
    """Public keys by owner; empty without encryption."""
    daemons: list[Daemon] = field(default_factory=list)
    """Daemons in the order of their starts."""

    def save(self, folder: Path) -> None:
        """Write the state atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE_FILE, _STORED.dump_python(self, mode="json", by_alias=True))

    @property
    def links(self) -> list[Daemon]:
        """All links that run."""
        return [daemon for daemon in self.daemons if daemon.leads_to]

    def server(self, name: str) -> Daemon:
        """A server by its name."""
        return next(daemon for daemon in self.daemons if daemon.name == name)

    def endpoint(self, host: str, server: str) -> str:
        """Endpoint at which a host reaches a server: that of its link if there is one."""
        for link in self.links:
            if (link.host, link.leads_to) == (host, server):
                return link.endpoint
        return self.server(server).endpoint


_STORED = TypeAdapter(TestbedState)


def load_state(folder: Path) -> TestbedState | None:
    """The testbed of a folder; None if none is up.

    Raises
    ------
    CorruptStore
        If the file is damaged, or of another version.
    """
    path = folder / STATE_FILE
    try:
        return _STORED.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptStore(
            f"{path} is damaged, or of another version of nearsight",
            advice="take the testbed down with that version; if none is up, remove the file",
        ) from error


@contextmanager
def locked(folder: Path, file: str = LOCK_FILE) -> Iterator[None]:
    """Lock a testbed for one command at a time; the lock is also released if its holder crashes.

    Raises
    ------
    SetupError
        If another command holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / file).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(
                f"another command uses the testbed in {folder}", advice="wait until it ends"
            ) from error
        yield
