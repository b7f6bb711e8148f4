"""Testbeds of real daemons: start, use by other commands, and removal in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.common.errors import SetupError
from nearsight.common.operation.status import ask_status
from nearsight.experiments.testbed.nodes import Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.state import TestbedState, load_state
from nearsight.experiments.testbed.testbed import bring_up, take_down
from support.testbeds import (
    CROWD,
    id_of,
    left_of,
    processes_with,
    take_down_leftovers,
    testbed_folder,
    write_inventory,
)

ALONE = """
[nodes.server]
kind = "process"
[cloud]
node = "server"
"""


pytestmark = pytest.mark.system


def nearsight(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nearsight", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_taking_down_a_missing_testbed_creates_no_folder(tmp_path: Path) -> None:
    assert not take_down(tmp_path / "misspelt.testbed")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with testbed_folder(tmp_path) as folder:
        yield folder


@pytest.mark.needs("namespaces")
def test_other_commands_use_a_running_testbed_and_down_removes_it(folder: Path, tmp_path: Path) -> None:
    path = write_inventory(tmp_path, CROWD.format(kind="namespace"))
    up = nearsight("testbed", "up", path)
    assert up.returncode == 0, up.stderr
    testbed_id = id_of(folder)
    assert len(left_of(testbed_id)) == 5

    shown = nearsight("testbed", "status", path, "--json")
    assert shown.returncode == 0, shown.stderr
    said = json.loads(shown.stdout)
    assert [daemon["name"] for daemon in said["daemons"]] == ["cloud", "link-to-cloud", "edge-main"]
    assert isinstance(said["daemons"][1]["calibration"]["rtt_error_ms"], float)
    assert said["daemons"][2]["endpoint"].startswith("tcp://10.78.0.2:")

    again = nearsight("testbed", "up", path)
    assert again.returncode == 5
    assert "or was not removed completely" in again.stderr

    os.kill(said["hosts"]["box"]["daemons"]["edge-main"]["pid"], signal.SIGKILL)
    broken = nearsight("testbed", "status", path)
    assert broken.returncode == 4
    assert "edge-main on box is not running" in broken.stderr

    down = nearsight("testbed", "down", path)
    assert down.returncode == 0, down.stderr
    assert left_of(testbed_id) == []
    assert processes_with(str(folder)) == []
    assert (folder / "nodes" / "box" / "edge-main.log").exists()
    assert not list(folder.rglob("*.key_secret"))
    assert nearsight("testbed", "status", path).returncode == 2


def test_a_failed_start_is_undone_and_the_error_names_the_daemon(folder: Path, tmp_path: Path) -> None:
    text = CROWD.format(kind="process").replace(
        'node = "box"', 'node = "box"\nsettings = { "cache.polizy" = "lru" }'
    )
    with pytest.raises(SetupError, match=r"edge-main on box ended before it was ready: error: .*polizy"):
        bring_up(read_inventory(write_inventory(tmp_path, text)), folder)
    assert load_state(folder) is None
    assert processes_with(str(folder)) == []


def test_hosts_of_a_building_share_its_link_to_the_cloud(folder: Path, tmp_path: Path) -> None:
    hop = '[[links]]\nfrom = "phone"\nto = "server"\nvia = "box"\n'
    inventory = read_inventory(write_inventory(tmp_path, CROWD.format(kind="process") + hop))
    state = bring_up(inventory, folder)
    endpoint = state.endpoint("phone-2", "cloud")
    (before,) = ask_status([endpoint], timeout_s=100.0)
    assert (before.daemon, before.error) == ("cloud", "")
    with Nodes(state, folder) as nodes:
        nodes["box"].stop(["link-to-cloud"])
    (after,) = ask_status([endpoint], timeout_s=1.0)
    assert after.error


def test_a_run_replaces_the_testbed_of_a_killed_run_and_no_other(folder: Path, tmp_path: Path) -> None:
    inventory = read_inventory(write_inventory(tmp_path, ALONE))
    left = bring_up(inventory, folder, of_run=True)  # as after the end of its run by SIGKILL
    with pytest.raises(SetupError, match=r"of a run is up in .*testbed down"):
        bring_up(inventory, folder)
    before = processes_with(str(folder))
    assert bring_up(inventory, folder, of_run=True).testbed_id != left.testbed_id
    assert len(processes_with(str(folder))) == len(before)
    take_down(folder)

    bring_up(inventory, folder)
    with pytest.raises(SetupError, match="testbed is up in"):
        bring_up(inventory, folder, of_run=True)


def test_testbeds_of_killed_tests_are_taken_down_and_those_of_running_ones_are_not(tmp_path: Path) -> None:
    inventory = read_inventory(write_inventory(tmp_path, CROWD.format(kind="process")))
    with subprocess.Popen(["true"]) as dead:
        pass
    folders = []
    for number, pid in enumerate((dead.pid, os.getpid())):
        folders.append(tmp_path / f"pytest-{number}" / "test_testbed" / "lab.testbed")
        TestbedState(inventory).save(folders[-1])
        (tmp_path / f"pytest-{number}" / ".lock").write_text(str(pid))
    take_down_leftovers(tmp_path)
    assert [load_state(folder) is None for folder in folders] == [True, False]


def test_the_testbed_of_a_killed_up_can_be_taken_down(folder: Path, tmp_path: Path) -> None:
    path = write_inventory(tmp_path, CROWD.format(kind="process"))
    with subprocess.Popen(
        [sys.executable, "-m", "nearsight", "testbed", "up", str(path)], stderr=subprocess.PIPE, text=True
    ) as up:
        assert up.stderr is not None
        for line in up.stderr:
            if "edges: main" in line:  # the cloud runs
                break
        up.kill()
        up.communicate()
    assert processes_with(str(folder))
    assert "`up` did not finish" in nearsight("testbed", "status", path).stderr
    assert take_down(folder)
    assert processes_with(str(folder)) == []
    assert not take_down(folder)
