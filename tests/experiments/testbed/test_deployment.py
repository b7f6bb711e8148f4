"""When an environment on a node is reused, and when it is replaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsight.common.errors import SetupError
from nearsight.experiments.testbed.deployment import deploy
from nearsight.experiments.testbed.inventory import Host, NodeSpec
from nearsight.experiments.testbed.nodes import Node


class Shell:
    """Records the commands for a node; ``pythons`` maps its interpreters to their real paths."""

    def __init__(self, pythons: dict[str, str], mark: str = "") -> None:
        self.pythons = pythons
        self.mark = mark
        self.log = "a warning of pip | nearsight: done"
        self.commands: list[Sequence[str]] = []

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> bytes:
        if command[-1] == "start":
            command = json.loads(given)["command"]
        self.commands.append(command)
        if command[-1] == "wait":
            return json.dumps({"answer": {"log": self.log}}).encode()
        if command[-1] == "stop" or given:
            return b'{"answer": {}}'
        if command[0] == "rm":
            self.mark = ""
        if command[0] == "cat":
            return self.mark.encode()
        if "realpath" in command[-1]:
            return self.pythons.get(command[0], "").encode()
        if command[:2] == ["sh", "-c"]:
            self.mark = command[-2]
        return b""

    def put(self, source: Path, target: str) -> None: ...

    def get(self, source: str, target: Path) -> None: ...

    def close(self) -> None: ...


def node(shell: Shell, python: str) -> Node:
    spec = NodeSpec(kind="ssh", host="lab", folder="there", python=python)
    return Node(Host(name="lab", node="lab", spec=spec, address="lab"), shell, "there", "python")


@pytest.mark.parametrize(("really", "cleared"), [("/usr/bin/python3.12", False), ("/gone/python3.11", True)])
def test_an_environment_of_another_python_is_replaced(tmp_path: Path, really: str, cleared: bool) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    shell = Shell({"python3": "/usr/bin/python3.12", "there/venv/bin/python": really})
    assert deploy(node(shell, "python3"), wheel)
    (made,) = [command for command in shell.commands if "venv" in command]
    assert ("--clear" in made) is cleared


def test_the_error_has_the_last_line_of_pip(tmp_path: Path) -> None:
    (tmp_path / "a.whl").touch()
    shell = Shell({})
    shell.log = "ERROR: No matching distribution found for faiss-cpu"
    with pytest.raises(
        SetupError, match=r"cannot be installed on lab: ERROR: No matching .*; docs/testbed.md"
    ):
        deploy(node(shell, "python3"), tmp_path / "a.whl")


def test_the_environment_is_reused_for_the_same_wheel_and_python(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    shell = Shell({"python3": "/usr/bin/python3.11", "python3.12": "/usr/bin/python3.12"})
    assert deploy(node(shell, "python3"), wheel)
    assert not deploy(node(shell, "python3"), wheel)
    assert deploy(node(shell, "python3.12"), wheel)
    wheel.write_bytes(b"another")
    assert deploy(node(shell, "python3.12"), wheel)
    shell.pythons["python3.12"] = "/opt/bin/python3.12"  # as after an upgrade of the system
    assert deploy(node(shell, "python3.12"), wheel)


def test_after_an_interrupted_installation_the_wheel_before_is_installed_again(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    shell = Shell({"python3": "/usr/bin/python3.11"})
    assert deploy(node(shell, "python3"), wheel)
    done, shell.log = shell.log, "ERROR: interrupted"
    wheel.write_bytes(b"another")
    with pytest.raises(SetupError):
        deploy(node(shell, "python3"), wheel)
    wheel.write_bytes(b"wheel")
    shell.log = done
    assert deploy(node(shell, "python3"), wheel)
