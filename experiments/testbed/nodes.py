"""The nodes of a testbed: one interface for this machine, a namespace of it, and a machine over SSH.

`Node` calls the `agent` on the node through a `Shell`. No state of a node is kept in memory between calls:
any later process that has the testbed's id and folder can continue.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nearsight.common.errors import InternalError, SetupError, Unavailable
from nearsight.experiments.rig import agent
from nearsight.experiments.rig.processes import DaemonState, Place, Process, start_order
from nearsight.experiments.testbed.inventory import DAEMON_NAME, Host
from nearsight.experiments.testbed.node_network import namespace_of
from nearsight.experiments.testbed.shells import ORDER_TIMEOUT_S, Shell, SshShell
from nearsight.experiments.testbed.state import TestbedState

T = TypeVar("T")
AGENT = Path(agent.__file__)
_NEEDED = """import sys; sys.exit(sys.version_info < (3, 11) and '{0} is Python {1}, nearsight needs 3.11: \
install a newer one, and name it as python in the node'.format(sys.executable, sys.version.split()[0]))"""
"""Any Python can run this program, which reports a version that is too old; the agent needs a recent one."""
_OWN = """[ ! -e "$1/venv" ] || [ -e "$1/agent.py" ] || [ -e "$1/venv/$2" ] || {
echo "$1/venv was not created by a testbed: name another folder in the node" >&2; exit 1; }"""
"""Refuses a folder with an environment of the user, which would be replaced, and removed with the testbed."""
WHEEL_MARK = "nearsight-wheel"
"""Name of the file in an environment of nearsight that says which wheel is installed there."""
_GROUPS = 2
"""Maximum number of control groups of a node, which are removed one after the other."""
_LISTED_FAILURES = 4
"""Maximum number of further failed nodes that an error message names."""


@dataclass(frozen=True, slots=True)
class Node(Place):
    """One host and its daemons."""

    host: Host
    shell: Shell
    """Runs commands on the node."""
    folder: str
    """Folder on the node, for this testbed only."""
    python: str
    """Interpreter on the node; runs nearsight once it is installed."""
    prefix: tuple[str, ...] = ()
    """Words before every daemon's command, such as ``ip netns exec NAME``."""
    group: str = ""
    """Name of its control group for limited processes."""
    agent: str = str(AGENT)
    """Path of the agent on the node."""
    logs: str = ""
    """Folder on this machine for the logs of an SSH node, which are copied when the testbed is taken down."""

    def prepare(self) -> Mapping[str, Any]:
        """Copy the agent to the node, create the folder, and return the properties of the node.

        Raises
        ------
        SetupError
            If the node lacks requirements of nearsight; names all of them. Or if its folder is the user's.
        """
        self.bring_agent()
        facts: Mapping[str, Any] = self.order("check", disk_mb=200, environment=self.host.spec.kind == "ssh")
        missing = list(facts["missing"])
        if self.host.limited and not facts["cgroup"]:
            missing.append("writable cgroups (root on Linux), which its profile needs")
        if missing:
            raise SetupError(
                f"{self.host.name} lacks {'; '.join(missing)}", advice="docs/testbed.md says how to get it"
            )
        self.shell.run(["sh", "-c", 'umask 077; mkdir -p "$1" && : >"$1/$2"', "sh", self.folder, agent.MARK])
        return facts

    def bring_agent(self) -> None:
        """Copy the agent to the node, unless the node uses the one of this package.

        Raises
        ------
        SetupError
            If the folder is the user's: nothing is copied to it. Or if the node's Python is too old.
        """
        if self.host.spec.kind == "ssh":
            self.shell.run(["sh", "-c", _OWN, "sh", self.host.spec.folder, WHEEL_MARK])
        if self.agent != str(AGENT):
            self.shell.run([self._agent_python, "-c", _NEEDED])
            self.shell.put(AGENT, self.agent)

    def path(self, name: str) -> str:
        """Path on the node of a file of this testbed."""
        return f"{self.folder}/{name}"

    def describe(self, daemon: str) -> str:
        """Name of the daemon and of its host."""
        return f"{daemon} on {self.host.name}"

    def log_place(self, daemon: str) -> str:
        """Where its log is; the logs of an SSH node are copied to this machine before they are removed."""
        if self.logs:
            return f"{self.logs}/{daemon}.log once the testbed is down"
        return Place.log_place(self, daemon)

    def put(self, source: Path, name: str) -> str:
        """Copy a file to the node; returns its path there."""
        self.shell.put(source, self.path(name))
        return self.path(name)

    def read(self, name: str) -> bytes:
        """Content of a file on the node."""
        return self.shell.run(["cat", self.path(name)])

    def start(
        self, name: str, arguments: Sequence[str], *, limited: bool = True, waits_for_input: bool = False
    ) -> Process:
        """Start ``python ARGUMENTS`` as a daemon of this name; ``limited``: within the node's limits."""
        self.order(
            "start",
            **start_order(self, name, [*self.prefix, self.python, *arguments]),
            limits=self.host.limits(self.group) if limited and self.host.limited else None,
            input=waits_for_input,
        )
        return Process(self, name)

    def states(self) -> dict[str, DaemonState]:
        """All daemons that were started here and not stopped.

        Names become names of files on this machine, and the node's answer is not trusted. Names that no
        testbed uses are therefore left out.
        """
        found = self.order("state").items()
        return {name: DaemonState(**state) for name, state in found if DAEMON_NAME.fullmatch(name)}

    def stop(self, names: Sequence[str] | None = None, grace_s: float = 8.0) -> None:
        """Stop the named daemons, or all. The caller must stop clients before their servers."""
        self.order("stop", names=None if names is None else list(names), grace_s=grace_s)

    def remove(self, *, files: bool) -> None:
        """Remove the node's limits, and its folder if ``files``; the caller stops all daemons before."""
        timeout_s = _GROUPS * agent.REMOVAL_TIMEOUT_S
        self.order("clear", group=self.group, folder_too=files, timeout_s=timeout_s)

    def order(self, command: str, /, **order: object) -> Any:
        """Run the agent on the node; see `Place`."""
        waiting = order.get("timeout_s") or order.get("grace_s") or 0.0
        timeout_s = ORDER_TIMEOUT_S + float(str(waiting))
        words = [self._agent_python, "-I", "-S", self.agent, command]
        given = json.dumps({"folder": self.folder, **order}).encode()
        try:
            text = self.shell.run(words, given=given, timeout_s=timeout_s)
        except Unavailable:
            if command != "wait":
                raise
            # The connection broke. Daemons on the node continue to run, so the wait can be repeated.
            text = self.shell.run(words, given=given, timeout_s=timeout_s)
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise InternalError(
                f"the agent on {self.host.name} sent an invalid answer: {text[:100]!r}"
            ) from error
        if "error" in answer:
            raise SetupError(f"{self.host.name}: {answer['error']}")
        return answer["answer"]

    @property
    def _agent_python(self) -> str:
        """The Python for the agent; it needs no virtual environment."""
        return self.host.spec.python if self.host.spec.kind == "ssh" else sys.executable


class Nodes:
    """All nodes of a testbed, for a ``with`` block at whose end their connections are closed.

    Parameters
    ----------
    state : TestbedState
        State of the testbed.
    folder : Path
        Folder of the testbed on this machine.
    """

    def __init__(self, state: TestbedState, folder: Path) -> None:
        self.by_name = {host.name: _node(state, host, folder) for host in state.inventory.hosts()}

    def __getitem__(self, host: str) -> Node:
        return self.by_name[host]

    def each(self, work: Callable[[Node], T], nodes: Iterable[Node] | None = None) -> list[T]:
        """Call a function for several nodes at the same time.

        Raises
        ------
        NearsightError
            If it fails for one or more nodes, after all calls have ended: the first error, which also has the
            messages of others.
        """
        chosen = list(self.by_name.values() if nodes is None else nodes)
        with ThreadPoolExecutor(max_workers=16) as pool:
            futures = [pool.submit(work, node) for node in chosen]
        failed = [error for future in futures if (error := future.exception()) is not None]
        expected = [error for error in failed if isinstance(error, SetupError | Unavailable)]
        if len(expected) > 1 and len(expected) == len(failed):
            first, *others = expected
            listed = [one.message for one in others[:_LISTED_FAILURES]]
            more = [f"and {len(others) - _LISTED_FAILURES} more"] if len(others) > _LISTED_FAILURES else []
            raise type(first)("; ".join([first.message, *listed, *more]), advice=first.advice) from first
        return [future.result() for future in futures]

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self.by_name.values():
            node.shell.close()


def _node(state: TestbedState, host: Host, folder: Path) -> Node:
    group, here = f"nearsight-{state.testbed_id}-{host.name}", str(folder.resolve() / "nodes" / host.name)
    if host.spec.kind == "ssh":
        there, own = host.spec.folder, f"{state.testbed_id}-{host.name}"
        shell = SshShell(host)
        agent_there = f"{there}/agent.py"
        return Node(host, shell, f"{there}/{own}", venv_python(host), (), group, agent_there, here)
    prefix = namespace_of(state.testbed_id, host).prefix if host.spec.kind == "namespace" else ()
    return Node(host, Shell(), here, sys.executable, prefix, group)


def venv_path(host: Host) -> str:
    """Virtual environment on a node over SSH; later testbeds reuse it."""
    return f"{host.spec.folder}/venv"


def venv_python(host: Host) -> str:
    """Interpreter of the virtual environment."""
    return f"{venv_path(host)}/bin/python"
