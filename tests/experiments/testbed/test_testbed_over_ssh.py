"""Nodes over SSH with a real sshd: installation, start, logs and removal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.common.errors import NearsightError, SetupError, Unavailable
from nearsight.common.operation.status import ask_status
from nearsight.common.rpc.security import ClientSecurity
from nearsight.experiments.rig.agent import MARK, started
from nearsight.experiments.testbed import deployment
from nearsight.experiments.testbed.building import Builder
from nearsight.experiments.testbed.nodes import Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.state import TestbedState, load_state
from nearsight.experiments.testbed.testbed import bring_up, clear_nodes, status, take_down
from support.sshd import Sshd, running_sshd, serving
from support.testbeds import processes_with, testbed_folder, write_inventory
from support.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.needs("sshd")]


def lab(sshd: Sshd, remote: Path) -> str:
    return f"""
[nodes.here]
kind = "process"
address = "127.0.0.1"
[nodes.lab]
{sshd.node}
address = "127.0.0.1"
folder = "{remote}"
python = "{sys.executable}"
pip = ["--no-index"]
[cloud]
node = "here"
[edges.main]
node = "lab"
[[links]]
from = "lab"
to = "here"
rtt_ms = 8
"""


def test_a_testbed_over_ssh_is_installed_run_and_removed(
    sshd: Sshd, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, remote)))
    with testbed_folder(tmp_path) as folder:
        state = bring_up(inventory, folder)
        assert [daemon.name for daemon in state.daemons] == ["cloud", "link-to-cloud", "edge-main"]
        security = ClientSecurity(folder / "keys" / "cloud.key_secret", state.keys["edge-main"])
        edge = [state.daemons[2].endpoint]
        wait_until(
            lambda: ask_status(edge, timeout_s=60.0, security=security)[0].ready, timeout_s=100.0, what="edge"
        )
        here, there = status(state, folder)
        assert here.daemons["cloud"].running
        assert {name: one.running for name, one in there.daemons.items()} == {
            "edge-main": True,
            "link-to-cloud": True,
        }
        assert processes_with(f"{remote}/venv/bin/python")

        assert take_down(folder)
        assert processes_with(str(remote)) == []
        assert "ready" in (folder / "nodes" / "lab" / "edge-main.log").read_text()
        left = sorted(path.name for path in remote.iterdir())
        assert [name for name in left if not name.endswith(".whl")] == ["agent.py", "venv"]

        # The next time nothing is installed.
        monkeypatch.setattr(deployment, "_install", None)
        bring_up(inventory.model_copy(update={"wheel": next(folder.glob("wheel/*.whl"))}), folder)
        take_down(folder, purge=True)
        assert not remote.exists()
        assert not folder.exists()


def test_an_unreachable_node_is_cleaned_up_when_it_is_reachable_again(
    tmp_path: Path, libraries: Path, remote: Path
) -> None:
    with testbed_folder(tmp_path) as folder:
        with running_sshd(tmp_path / "sshd", {"PYTHONPATH": str(libraries)}) as sshd:
            bring_up(read_inventory(write_inventory(tmp_path, lab(sshd, remote))), folder)
            (edge,) = [line for line in processes_with(f"{remote}/venv/bin/python") if " edge " in line]
        state = load_state(folder)
        assert state is not None
        here, there = status(state, folder)
        assert "lab cannot be reached" in there.error
        assert here.daemons["cloud"].running
        with pytest.raises(Unavailable, match=r"lab cannot be reached.*again when the node can be reached"):
            take_down(folder)
        assert processes_with(str(folder)) == []
        assert edge in processes_with(str(remote))
        with serving(sshd):
            assert take_down(folder)
        assert processes_with(str(remote)) == []


def test_the_installation_can_be_removed_without_a_running_testbed(sshd: Sshd, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "venv").mkdir(parents=True)
    (there / "agent.py").touch()
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    (tmp_path / "state" / "nodes").mkdir(parents=True)
    assert clear_nodes(inventory, tmp_path / "state") == (f"{there} on lab",)
    assert not there.exists()
    assert not (tmp_path / "state").exists()


def test_an_interrupted_installation_ends_on_the_node(sshd: Sshd, tmp_path: Path) -> None:
    slow, begun = tmp_path / "python3", tmp_path / "begun"
    venv = f'[ "$2" != venv ] || {{ echo $$ >"{begun}"; exec sleep 600; }}'
    slow.write_text(f'#!/bin/sh\n{venv}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o700)
    (tmp_path / "a.whl").touch()
    text = lab(sshd, tmp_path / "there").replace(f'"{sys.executable}"', f'"{slow}"')
    path = write_inventory(tmp_path, f'wheel = "a.whl"\n{text}')
    command = [sys.executable, "-m", "nearsight", "testbed", "up", str(path)]
    with testbed_folder(tmp_path), subprocess.Popen(command, start_new_session=True) as up:
        wait_until(lambda: begun.exists() and begun.read_text() != "", timeout_s=100.0, what="venv")
        os.killpg(up.pid, signal.SIGINT)  # as Ctrl-C in a terminal
        up.wait(100)
    assert started(int(begun.read_text())) is None


def test_nodes_on_one_machine_are_installed_once(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    (there / "venv").mkdir(parents=True)
    (tmp_path / "a.whl").touch()
    text = lab(sshd, there)
    second = text[text.index("[nodes.lab]") : text.index("[cloud]")].replace("nodes.lab", "nodes.second")
    inventory = read_inventory(write_inventory(tmp_path, f'wheel = "a.whl"\n{text}{second}'))
    installed = set()
    monkeypatch.setattr(deployment, "_install", lambda node, _command: installed.add(node.host.name))
    state = TestbedState(inventory)
    with Nodes(state, tmp_path) as nodes:
        Builder(state, tmp_path, nodes, lambda _stage: None)._install()
    assert len(installed) == 1


def test_files_of_another_testbed_on_the_node_are_not_removed(sshd: Sshd, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "venv").mkdir(parents=True)
    (there / "agent.py").touch()
    (there / "abc123-lab").mkdir()
    (there / "abc123-lab" / MARK).touch()
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    assert clear_nodes(inventory, tmp_path / "state") == ()
    assert (there / "venv").is_dir()
    assert (there / "agent.py").is_file()


def test_a_testbed_can_be_taken_down_without_its_agent(sshd: Sshd, tmp_path: Path) -> None:
    there = tmp_path / "there"
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    with testbed_folder(tmp_path) as folder:
        state = TestbedState(inventory, prepared=True)
        state.save(folder)
        with Nodes(state, folder) as nodes:
            nodes["lab"].prepare()
            sleeps = [sys.executable, "-c", f"import time; time.sleep(600)  # {there}"]
            nodes["lab"].order("start", name="edge-main", command=sleeps)
        (there / "agent.py").unlink()
        assert take_down(folder)
    assert processes_with(f"# {there}") == []


def test_files_of_the_user_are_not_removed(sshd: Sshd, tmp_path: Path) -> None:
    there, state = tmp_path / "there", tmp_path / "state"
    for folder in (there / "venv", state / "nodes", state / "photos"):
        folder.mkdir(parents=True)
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    assert clear_nodes(inventory, state) == ()
    assert (there / "venv").is_dir()
    assert [path.name for path in state.iterdir()] == ["photos"]


def test_a_node_without_python_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    text = lab(sshd, tmp_path / "remote").replace(sys.executable, "python9")
    with testbed_folder(tmp_path) as folder:
        with pytest.raises(NearsightError, match=r"lab.*python9.*not found; .*apt-get install python3"):
            bring_up(read_inventory(write_inventory(tmp_path, text)), folder)
        assert not (tmp_path / "remote").exists()
        assert not (folder / "testbed.json").exists()


def test_a_python_that_is_too_old_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    says = "import sys; sys.version_info = (3, 6, 15); sys.version = '3.6.15 (old)'; exec(sys.argv[2])"
    old = tmp_path / "python3.6"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{says}" "$@"\n')
    old.chmod(0o700)
    text = lab(sshd, tmp_path / "remote").replace(f'"{sys.executable}"', f'"{old}"')
    with (
        testbed_folder(tmp_path) as folder,
        pytest.raises(SetupError, match=r"lab: \S+ is Python 3.6.15, nearsight needs 3.11: install a newer"),
    ):
        bring_up(read_inventory(write_inventory(tmp_path, text)), folder)
