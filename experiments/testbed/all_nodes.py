"""All nodes of a testbed, reached over SSH or on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.testbed.inventory import Host
from nearsight.experiments.testbed.node_network import namespace_of
from nearsight.experiments.testbed.nodes import LocalShell, Node, NodePlace
from nearsight.experiments.testbed.ssh_node import SshShell, agent_path, folder_path, venv_python
from nearsight.experiments.testbed.state import TestbedState

T = TypeVar("T")
_TOLD = 4
"""Of further nodes that fail, too."""


class Nodes:
    """All nodes of a testbed, reachable while this is open.

    Parameters
    ----------
    state : TestbedState
        Whose.
    folder : Path
        The testbed's, on this machine.
    """

    def __init__(self, state: TestbedState, folder: Path) -> None:
        self.by_name = {host.name: _node(state, host, folder) for host in state.inventory.hosts()}

    def __getitem__(self, host: str) -> Node:
        return self.by_name[host]

    def each(self, work: Callable[[Node], T], nodes: Iterable[Node] | None = None) -> list[T]:
        """Do something on several nodes at the same time.

        Raises
        ------
        NearsightError
            If it fails on one or more, after all are done: the first error, which tells of the others, too.
        """
        chosen = list(self.by_name.values() if nodes is None else nodes)
        with ThreadPoolExecutor(max_workers=16) as pool:
            futures = [pool.submit(work, node) for node in chosen]
        failed = [error for future in futures if (error := future.exception()) is not None]
        expected = [error for error in failed if isinstance(error, SetupError | Unavailable)]
        if len(expected) > 1 and len(expected) == len(failed):
            first, *others = expected
            told = [one.message for one in others[:_TOLD]]
            more = [f"and {len(others) - _TOLD} more"] if len(others) > _TOLD else []
            raise type(first)("; ".join([first.message, *told, *more]), advice=first.advice) from first
        return [future.result() for future in futures]

    def close(self) -> None:
        """End all connections."""
        for node in self.by_name.values():
            node.shell.close()


@contextmanager
def opened(state: TestbedState, folder: Path) -> Iterator[Nodes]:
    """The nodes of a testbed, for a block."""
    nodes = Nodes(state, folder)
    try:
        yield nodes
    finally:
        nodes.close()


def _node(state: TestbedState, host: Host, folder: Path) -> Node:
    group = f"nearsight-{state.testbed_id}-{host.name}"
    if host.spec.kind == "ssh":
        place = NodePlace(folder_path(host, state.testbed_id), venv_python(host), group=group)
        return Node(host, SshShell(host, state.testbed_id), place, agent_path(host))
    prefix = namespace_of(state.testbed_id, host).prefix if host.spec.kind == "namespace" else ()
    place = NodePlace(str(folder.resolve() / "nodes" / host.name), sys.executable, prefix, group)
    return Node(host, LocalShell(), place)
