"""Orders to several nodes at the same time."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsight.common.errors import CorruptStore, SetupError, Unavailable
from nearsight.experiments.testbed import nodes
from nearsight.experiments.testbed.building import bring_files
from nearsight.experiments.testbed.inventory import Host, NodeSpec, ServerSpec
from nearsight.experiments.testbed.nodes import Node, Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.shells import Shell, _new_file
from nearsight.experiments.testbed.state import STATE_FILE, Daemon, TestbedState, load_state
from nearsight.experiments.testbed.testbed import bring_up, collect_logs
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


def test_one_error_names_all_failed_nodes(tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"lab-1 lacks venv; lab-2 .*lab-5 lacks venv; and 1 more; install it$"
    ):
        nodes_of(tmp_path).each(lacks)


def test_the_error_of_a_single_node_is_not_changed(tmp_path: Path) -> None:
    several = nodes_of(tmp_path)
    with pytest.raises(SetupError, match=r"^lab-3 lacks venv; install it$"):
        several.each(lacks, [several["server"], several["lab-3"]])


def test_answers_are_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    several = nodes_of(tmp_path)
    assert several.each(lacks, [several["server"], several["server"]]) == ["server", "server"]


class BrokenConnection:
    """The shell of a node whose connection is lost once."""

    def __init__(self) -> None:
        self.broke = False

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> bytes:
        if not self.broke:
            self.broke = True
            raise Unavailable("lab cannot be reached: the connection broke")
        return b'{"answer": {"running": false}}'


def test_after_a_lost_connection_only_a_wait_is_repeated(tmp_path: Path) -> None:
    node = dataclasses.replace(nodes_of(tmp_path)["lab-1"], shell=BrokenConnection())
    assert node.order("wait", name="device", timeout_s=60.0, until="ended") == {"running": False}
    node = dataclasses.replace(node, shell=BrokenConnection())
    with pytest.raises(Unavailable):
        node.order("start", name="device")  # it may have been executed


def test_settings_with_files_of_one_name_have_their_own_files(tmp_path: Path) -> None:
    files = {key: tmp_path / key / "phone.json" for key in ("cache.profile", "state")}
    for key, path in files.items():
        path.parent.mkdir()
        path.write_text(key)
    copied = bring_files(nodes_of(tmp_path)["server"], "edge-main", ServerSpec(node="server", files=files))
    assert {key: Path(path).read_text() for key, path in copied.items()} == {key: key for key in files}


def test_an_environment_of_the_user_in_the_folder_of_a_node_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    spec = NodeSpec(kind="ssh", host="lab", folder=str(tmp_path))
    host = Host(name="lab", node="lab", spec=spec, address="lab")
    with pytest.raises(SetupError, match=r"venv was not created by a testbed: name another folder"):
        Node(host, Shell(), str(tmp_path / "own"), sys.executable).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["venv"]


def ssh_node(folder: Path) -> str:
    lab = f'[nodes.lab]\nkind = "ssh"\nhost = "lab"\nfolder = "{folder}"\npython = "{sys.executable}"'
    return f'{lab}\n[cloud]\nnode = "lab"\n'


def test_the_removal_after_a_refusal_leaves_the_folder_so_that_it_is_refused_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SshShell", lambda _host: Shell())  # the node is this machine
    (tmp_path / "there" / "venv").mkdir(parents=True)
    inventory = read_inventory(write_inventory(tmp_path, ssh_node(tmp_path / "there")))
    for _ in range(2):
        with pytest.raises(SetupError, match="venv was not created by a testbed"):
            bring_up(inventory, tmp_path / "state")
        assert load_state(tmp_path / "state") is None
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["venv"]


def test_an_environment_with_the_mark_of_a_wheel_is_a_testbeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SshShell", lambda _host: Shell())
    (tmp_path / "there" / "venv").mkdir(parents=True)
    (tmp_path / "there" / "venv" / "nearsight-wheel").touch()
    state = TestbedState(read_inventory(write_inventory(tmp_path, ssh_node(tmp_path / "there"))))
    with Nodes(state, tmp_path) as opened:
        opened["lab"].bring_agent()
    assert (tmp_path / "there" / "agent.py").exists()


def test_the_error_of_a_daemon_names_the_copy_of_its_log_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SshShell", lambda _host: Shell())
    state = TestbedState(read_inventory(write_inventory(tmp_path, ssh_node(tmp_path / "there"))))
    with Nodes(state, tmp_path) as opened:
        assert opened["lab"].log_place("cloud").startswith(f"{tmp_path}/nodes/lab/cloud.log")
    there = nodes_of(tmp_path)["server"]
    assert there.log_place("cloud") == f"{tmp_path}/nodes/server/cloud.log"


def test_the_removal_of_control_groups_has_the_time_that_the_agent_may_need(tmp_path: Path) -> None:
    timeouts_s = []

    class Records(Shell):
        def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> bytes:
            timeouts_s.append(timeout_s)
            return b'{"answer": {}}'

    dataclasses.replace(nodes_of(tmp_path)["server"], shell=Records()).remove(files=False)
    assert timeouts_s[0] > 2 * 60.0  # the groups of CPU and of memory


class HostileNode:
    """The shell of a hostile node, whose agent reports invalid names of daemons."""

    names = ("cloud", "../../../outside", "/tmp/outside", "..", "a/b", "Cloud\n", "edge-main")

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> bytes:
        state = {"running": False, "pid": 1, "announced": None, "log": "", "cpu_s": 0.0, "memory_bytes": 0}
        return json.dumps({"answer": dict.fromkeys(self.names, state)}).encode()

    def get(self, source: str, target: Path) -> None:
        with _new_file(target) as file:
            file.write(b"the log")


def test_names_from_a_node_cannot_lead_outside_the_folder_of_its_logs(tmp_path: Path) -> None:
    folder = tmp_path / "lab" / "lab.testbed"
    folder.mkdir(parents=True)
    node = dataclasses.replace(nodes_of(tmp_path)["lab-1"], shell=HostileNode())
    names = list(node.states())
    assert names == ["cloud", "edge-main"]
    mine = tmp_path / "mine"
    mine.write_text("mine")
    home = folder / "nodes" / "lab-1"
    home.mkdir(parents=True)
    (home / "cloud.log").symlink_to(mine)
    collect_logs(node, names, folder)
    assert mine.read_text() == "mine"
    assert not (home / "cloud.log").is_symlink()
    assert {path.name for path in home.iterdir()} == {"cloud.log", "edge-main.log"}
    assert {path.name for path in tmp_path.iterdir()} == {"lab", "lab.toml", "mine"}


def test_a_symbolic_link_as_the_folder_of_logs_is_refused(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "lab.testbed", tmp_path / "elsewhere"
    (folder / "nodes").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "nodes" / "lab-1").symlink_to(elsewhere)
    node = dataclasses.replace(nodes_of(tmp_path)["lab-1"], shell=HostileNode())
    with pytest.raises(SetupError, match="is a link to another place"):
        collect_logs(node, ["cloud"], folder)
    assert list(elsewhere.iterdir()) == []


def test_a_stored_testbed_is_checked_like_an_inventory(tmp_path: Path) -> None:
    state = TestbedState(read_inventory(write_inventory(tmp_path, SEVEN)))
    state.daemons.append(Daemon("server", "cloud", "tcp://127.0.0.1:1"))
    state.save(tmp_path)
    assert load_state(tmp_path) is not None
    stored = tmp_path / STATE_FILE
    for good, bad in (('"name": "cloud"', '"name": "../../x"'), ('"user": ""', '"user": "-oProxyCommand=x"')):
        text = stored.read_text()
        assert good in text
        stored.write_text(text.replace(good, bad))
        with pytest.raises(
            CorruptStore, match=r"testbed\.json is damaged, or of another version .*; take the"
        ):
            load_state(tmp_path)
        stored.write_text(text)
