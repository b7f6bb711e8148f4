"""Orders to several nodes at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.testbed.inventory import read_inventory
from nearsight.experiments.testbed.nodes import Node, Nodes
from nearsight.experiments.testbed.state import TestbedState
from support.testbeds import write_inventory

SEVEN = """
[nodes.server]
kind = "process"
[nodes.lab]
kind = "process"
count = 6
[cloud]
node = "server"
"""


def nodes_of(folder: Path) -> Nodes:
    return Nodes(TestbedState(read_inventory(write_inventory(folder, SEVEN))), folder)


def lacks(node: Node) -> str:
    if node.host.node == "lab":
        raise SetupError(f"{node.host.name} lacks venv", advice="install it")
    return node.host.name


def test_all_nodes_that_fail_are_told_in_one_error(tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"lab-1 lacks venv; lab-2 .*lab-5 lacks venv; and 1 more; install it$"
    ):
        nodes_of(tmp_path).each(lacks)


def test_the_error_of_one_node_stays_as_it_is(tmp_path: Path) -> None:
    nodes = nodes_of(tmp_path)
    with pytest.raises(SetupError, match=r"^lab-3 lacks venv; install it$"):
        nodes.each(lacks, [nodes["server"], nodes["lab-3"]])


def test_answers_come_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    nodes = nodes_of(tmp_path)
    assert nodes.each(lacks, [nodes["server"], nodes["server"]]) == ["server", "server"]
