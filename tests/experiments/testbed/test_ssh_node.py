"""Nodes over SSH, against a real sshd: what is installed, started, collected and removed there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nearsight.common.errors import NearsightError, SetupError, Unavailable
from nearsight.common.operation.status import ask_status
from nearsight.common.rpc.security import ClientSecurity
from nearsight.experiments.testbed import deployment
from nearsight.experiments.testbed.inventory import Host, NodeSpec
from nearsight.experiments.testbed.inventory_file import read_inventory
from nearsight.experiments.testbed.ssh_node import SshShell
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


def test_a_node_over_ssh_is_installed_watched_and_cleared(
    sshd: Sshd, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, remote)))
    with testbed_folder(tmp_path) as folder:
        state = bring_up(inventory, folder)
        assert [daemon.name for daemon in state.daemons] == ["cloud", "link-to-cloud", "edge-main"]
        security = ClientSecurity(folder / "keys" / "cloud.key_secret", state.keys["edge-main"])
        edge = [state.daemons[2].endpoint]
        wait_until(
            lambda: ask_status(edge, timeout_s=5.0, security=security)[0].ready, timeout_s=30.0, what="edge"
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


def test_a_node_that_is_off_is_cleared_when_it_is_back(tmp_path: Path, libraries: Path, remote: Path) -> None:
    with testbed_folder(tmp_path) as folder:
        with running_sshd(tmp_path / "sshd", {"PYTHONPATH": str(libraries)}) as sshd:
            bring_up(read_inventory(write_inventory(tmp_path, lab(sshd, remote))), folder)
            (edge,) = [line for line in processes_with(f"{remote}/venv/bin/python") if " edge " in line]
        here, there = status(load(folder), folder)
        assert "lab cannot be reached" in there.error
        assert here.daemons["cloud"].running
        with pytest.raises(Unavailable, match=r"lab cannot be reached.*again when the node is back"):
            take_down(folder)
        assert processes_with(str(folder)) == []
        assert edge in processes_with(str(remote))
        with serving(sshd):
            assert take_down(folder)
        assert processes_with(str(remote)) == []


def test_what_was_installed_can_be_removed_where_no_testbed_is_up(sshd: Sshd, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "venv").mkdir(parents=True)
    (there / "agent.py").touch()
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    (tmp_path / "state" / "nodes").mkdir(parents=True)
    assert clear_nodes(inventory, tmp_path / "state") == (f"{there} on lab",)
    assert not there.exists()
    assert not (tmp_path / "state").exists()


def test_what_no_testbed_made_stays_where_none_is_up(sshd: Sshd, tmp_path: Path) -> None:
    there, state = tmp_path / "there", tmp_path / "state"
    for folder in (there / "venv", state / "nodes", state / "photos"):
        folder.mkdir(parents=True)
    inventory = read_inventory(write_inventory(tmp_path, lab(sshd, there)))
    assert clear_nodes(inventory, state) == ()
    assert (there / "venv").is_dir()
    assert [path.name for path in state.iterdir()] == ["photos"]


def load(folder: Path) -> TestbedState:
    state = load_state(folder)
    assert state is not None
    return state


def shell(sshd: Sshd, **changes: object) -> SshShell:
    spec = NodeSpec(
        kind="ssh",
        host="127.0.0.1",
        port=sshd.port,
        key=sshd.key,
        options=(f"UserKnownHostsFile={sshd.known_hosts}",),
    )
    return SshShell(
        Host(name="lab", node="lab", spec=spec.model_copy(update=changes), address="127.0.0.1"), "test"
    )


def test_files_and_words_pass_as_they_are(sshd: Sshd, tmp_path: Path) -> None:
    lab = shell(sshd)
    try:
        content = bytes(range(256)) * 4096
        (tmp_path / "sent").write_bytes(content)
        there = tmp_path / "a folder" / "it's; $HOME"
        lab.put(tmp_path / "sent", str(there))
        assert there.read_bytes() == content
        assert there.stat().st_mode & 0o077 == 0
        lab.get(str(there), tmp_path / "back" / "again")
        assert (tmp_path / "back" / "again").read_bytes() == content
        assert lab.run(["printf", "%s|", "a b", "$(id)", "'"]) == b"a b|$(id)|'|"
    finally:
        lab.close()


def test_a_command_that_fails_shows_its_last_words(sshd: Sshd) -> None:
    lab = shell(sshd)
    try:
        with pytest.raises(SetupError, match="lab: no room"):
            lab.run(["sh", "-c", "echo first >&2; echo no room >&2; exit 3"])
    finally:
        lab.close()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"port": 1}, "Connection refused; is sshd running there"),
        (
            {"options": ("UserKnownHostsFile=/dev/null",)},
            r"Host key verification failed; connect once by hand with `ssh -p \d+ -i \S+ -o UserKnown",
        ),
        ({"user": "nobody-of-this-name"}, "Permission denied.*ssh-copy-id"),
        ({"host": "no-such-host.invalid"}, "Could not resolve.*check the node's host"),
    ],
)
def test_a_node_that_cannot_be_reached_says_what_to_do(
    sshd: Sshd, changes: dict[str, object], complaint: str
) -> None:
    lab = shell(sshd, **changes)
    try:
        with pytest.raises(Unavailable, match=complaint) as error:
            lab.run(["true"])
        assert "\n" not in str(error.value)
    finally:
        lab.close()


def test_a_command_that_hangs_is_given_up(sshd: Sshd) -> None:
    lab = shell(sshd)
    try:
        with pytest.raises(Unavailable, match="did not answer within"):
            lab.run(["sleep", "60"], timeout_s=1.0)
    finally:
        lab.close()


def test_a_node_without_python_says_so(sshd: Sshd, tmp_path: Path) -> None:
    text = lab(sshd, tmp_path / "remote").replace(sys.executable, "python9")
    with testbed_folder(tmp_path) as folder:
        with pytest.raises(NearsightError, match=r"lab.*python9.*not found; .*apt-get install python3"):
            bring_up(read_inventory(write_inventory(tmp_path, text)), folder)
        assert [path.name for path in (tmp_path / "remote").iterdir()] == ["agent.py"]
        assert not (folder / "testbed.json").exists()
