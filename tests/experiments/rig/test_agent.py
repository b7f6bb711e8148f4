"""The agent of a node: its daemons continue to run after it ended, and later calls find and stop them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nearsight.experiments.rig import agent
from nearsight.experiments.testbed.inventory import cpu_time
from nearsight.experiments.testbed.nodes import AGENT
from support.testbeds import group_of, own_id
from support.waiting import wait_until

# All end by themselves, because they continue to run after a killed test.
SLEEPS = "import signal; signal.alarm(300); signal.pause()"
ANNOUNCES = """
import pathlib, signal, sys
signal.alarm(300)
pathlib.Path(sys.argv[1]).write_text('{"endpoint": "tcp://here:1"}')
signal.pause()
"""
STUBBORN = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.alarm(300)
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.alarm(300); signal.pause()"])
pathlib.Path(sys.argv[1]).write_text('{"child": %d}' % child.pid)
while True:
    signal.pause()
"""
WORKS = """
import pathlib, signal, sys, time
while time.process_time() < 0.2:
    pass
signal.alarm(300)
pathlib.Path(sys.argv[1]).write_text('{"done": true}')
signal.pause()
"""
ENDS_WITHOUT_ITS_FIRST_THREAD = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""
BURNS = "import signal; signal.alarm(300)\nwhile True: pass"


class Calls:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, /, **order: object) -> Any:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(AGENT), command],
            input=json.dumps({"folder": str(self.folder), **order}),
            capture_output=True,
            text=True,
            check=True,
        )
        answer = json.loads(done.stdout)
        return answer.get("answer", answer)

    def start(self, name: str, code: str, **order: object) -> int:
        command = [sys.executable, "-S", "-c", code, str(self.folder / f"{name}.json")]
        return int(self("start", name=name, command=command, **order)["pid"])


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Calls]:
    calls = Calls(tmp_path)
    yield calls
    calls("stop", grace_s=0.0)


def gone(pid: int) -> bool:
    return agent.started(pid) is None


def test_a_daemon_runs_on_after_the_agent_ended_and_the_next_call_finds_it(call: Calls) -> None:
    pid = call.start("edge", ANNOUNCES)
    state = call("wait", name="edge", timeout_s=100.0)
    assert state["running"]
    assert state["pid"] == pid
    assert state["announced"] == {"endpoint": "tcp://here:1"}
    assert os.getsid(pid) == pid
    assert call("stop", grace_s=100.0) == {"stopped": 1, "killed": 0}
    assert gone(pid)
    assert call("state") == {}


def test_a_daemon_that_ignores_sigterm_is_killed_with_its_children(call: Calls) -> None:
    pid = call.start("edge", STUBBORN)
    child = call("wait", name="edge", timeout_s=100.0)["announced"]["child"]
    assert call("stop", grace_s=0.2)["killed"] == 1
    assert gone(pid)
    wait_until(lambda: gone(child), what="end of the child")


def test_another_process_that_reuses_the_process_id_is_not_stopped(call: Calls, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEPS]) as other:
        record = {"pid": other.pid, "started": 1}
        (tmp_path / "edge.run").write_text(json.dumps(record))
        assert not call("state")["edge"]["running"]
        assert call("stop")["stopped"] == 0
        assert other.poll() is None
        other.send_signal(signal.SIGKILL)


def test_another_child_of_this_process_that_reuses_the_process_id_is_not_stopped(tmp_path: Path) -> None:
    place = {"folder": str(tmp_path)}
    child = agent.launch({**place, "name": "cloud", "command": [sys.executable, "-S", "-c", SLEEPS]})
    try:
        (tmp_path / "edge.run").write_text(json.dumps({"pid": child.pid, "started": 1}))
        running = {name: state["running"] for name, state in agent.state(place).items()}
        assert running == {"cloud": True, "edge": False}
        assert agent.stop({**place, "names": ["edge"]})["stopped"] == 0
        assert child.poll() is None
    finally:
        agent.stop({**place, "grace_s": 0.0})
        child.wait()


def test_a_child_of_this_process_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    order = {"folder": str(tmp_path), "name": "visitor", "capture": True}
    command = [sys.executable, "-S", "-c", ENDS_WITHOUT_ITS_FIRST_THREAD]
    child = agent.launch({**order, "command": command})
    wait_until(lambda: agent.started(child.pid) is None, what="the end of the first thread")
    assert child.poll() is None
    assert agent.state(order)["visitor"]["running"]
    child.communicate()
    assert not agent.state(order)["visitor"]["running"]


def test_no_process_is_stopped_on_systems_without_start_times_of_processes(call: Calls) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEPS]) as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agent, "stat_fields", lambda _pid: [])
            assert not agent.alive({"pid": other.pid, "started": None})
        other.kill()


def test_a_missing_program_is_an_error_with_its_name(call: Calls) -> None:
    answer = call("start", name="edge", command=["/no/such/program"])
    assert "edge cannot be started: FileNotFoundError" in answer["error"]
    assert call("state") == {}


def test_a_second_daemon_of_the_same_name_is_refused(call: Calls) -> None:
    pid = call.start("edge", SLEEPS)
    answer = call("start", name="edge", command=["true"])
    assert answer["error"] == f"edge is already running, as process {pid}"


def test_a_daemon_reads_lines_that_are_written_to_it(call: Calls) -> None:
    call.start("phone", "import sys; print('got', sys.stdin.readline())", input=True)
    call("write_line", name="phone", line="go")
    assert call("wait", name="phone", timeout_s=100.0, until="ended")["log"] == "got go"


def test_only_folders_with_the_mark_of_a_testbed_are_deleted(call: Calls, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    call("clear", folder_too=True)
    assert (tmp_path / "precious").exists()
    (tmp_path / agent.MARK).touch()
    call("clear", folder_too=True)
    assert not tmp_path.exists()


def test_missing_requirements_of_a_node_are_listed(call: Calls) -> None:
    facts = call("check", disk_mb=10**12)
    assert len(facts["missing"]) == 1
    assert "MB of disk" in facts["missing"][0]


def test_only_nodes_with_an_environment_of_their_own_need_the_module_venv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.importlib.util, "find_spec", lambda _name: None)
    order = {"folder": str(tmp_path)}
    assert agent.check(order)["missing"] == []
    venv, ensurepip = agent.check({**order, "environment": True})["missing"]
    assert "module venv" in venv
    assert "module ensurepip" in ensurepip


@pytest.mark.system
@pytest.mark.needs("cgroups")
def test_a_daemon_exceeds_its_limits_of_cpu_and_memory_at_no_time(call: Calls) -> None:
    group = group_of(own_id())
    limits = {"group": group, "cpu_us": cpu_time(0.2), "memory_bytes": 100 * 2**20}
    try:
        process = psutil.Process(call.start("burns", BURNS, limits=limits))
        # The clock is read before the first and after the last CPU time: a delay between them is no error.
        began_s, before_s = time.monotonic(), process.cpu_times().user
        wait_until(lambda: process.cpu_times().user - before_s >= 0.2, what="0.2 s of work")
        used_s, lasted_s = process.cpu_times().user - before_s, time.monotonic() - began_s
        assert used_s < 0.3 * lasted_s
        call.start("greedy", f"held = bytearray(300 * 2**20)\n{SLEEPS}", limits=limits)
        state = call("wait", name="greedy", timeout_s=100.0, until="ended")
        assert not state["running"]
    finally:
        call("stop", grace_s=0.0)
        call("clear", group=group)
    assert not any(Path(folder).exists() for folder in agent.groups_of(group))


@pytest.mark.system
@pytest.mark.needs("cgroups")
def test_a_part_of_a_core_is_given_in_short_slices(call: Calls) -> None:
    group = group_of(own_id())
    try:
        call.start("works", WORKS, limits={"group": group, "cpu_us": cpu_time(0.5), "memory_bytes": 0})
        call("wait", name="works", timeout_s=100.0)
        counters = dict(
            line.split() for line in (Path(agent.groups_of(group)[0]) / "cpu.stat").read_text().splitlines()
        )
        assert int(counters["nr_throttled"]) > 20, (
            "200 ms of work in slices of 1 ms; with slices of 25 ms it would be 8 times"
        )
    finally:
        call("stop", grace_s=0.0)
        call("clear", group=group)


@pytest.mark.parametrize(
    ("mounts", "version", "folders"),
    [
        ("cgroup {0}/cpu cgroup rw,cpu 0 0\ncgroup {0}/memory cgroup rw,memory 0 0\n", 1, 2),
        ("cgroup2 {0} cgroup2 rw 0 0\n", 2, 1),
        ("tmpfs / tmpfs rw 0 0\n", 0, 0),
    ],
)
def test_both_versions_of_cgroups_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, version: int, folders: int
) -> None:
    for name in ("cpu", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "mounts").write_text(mounts.format(tmp_path))
    monkeypatch.setattr(agent, "MOUNTS", str(tmp_path / "mounts"))
    assert agent.cgroup_version() == version
    assert len(agent.groups_of("x")) == folders
    if version == 2:
        (folder,) = agent.limit({"group": "x", "cpu_us": cpu_time(0.5), "memory_bytes": 2**30})
        assert (Path(folder) / "cpu.max").read_text() == "1000 2000"
        assert (Path(folder) / "memory.max").read_text() == str(2**30)
