"""The agent of a node: daemons that outlive it, found again by any later call, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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

# All end by themselves: they outlive whoever started them, also tests that were killed.
SLEEPS = "import signal; signal.alarm(60); signal.pause()"
ANNOUNCES = """
import pathlib, signal, sys
signal.alarm(60)
pathlib.Path(sys.argv[1]).write_text('{"endpoint": "tcp://here:1"}')
signal.pause()
"""
STUBBORN = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.alarm(60)
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.alarm(60); signal.pause()"])
pathlib.Path(sys.argv[1]).write_text('{"child": %d}' % child.pid)
while True:
    signal.pause()
"""
WORKS = """
import pathlib, signal, sys, time
while time.process_time() < 0.2:
    pass
signal.alarm(60)
pathlib.Path(sys.argv[1]).write_text('{"done": true}')
signal.pause()
"""


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
            timeout=30,
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


def test_a_daemon_outlives_the_agent_and_is_found_by_the_next_call(call: Calls) -> None:
    pid = call.start("edge", ANNOUNCES)
    state = call("wait", name="edge", timeout_s=20.0)
    assert state["running"]
    assert state["pid"] == pid
    assert state["announced"] == {"endpoint": "tcp://here:1"}
    assert os.getsid(pid) == pid
    assert call("stop") == {"stopped": 1, "killed": 0}
    assert gone(pid)
    assert call("state") == {}


def test_a_daemon_that_ignores_the_request_is_killed_with_its_children(call: Calls) -> None:
    pid = call.start("edge", STUBBORN)
    child = call("wait", name="edge", timeout_s=20.0)["announced"]["child"]
    assert call("stop", grace_s=0.2)["killed"] == 1
    assert gone(pid)
    wait_until(lambda: gone(child), what="end of the child")


def test_a_daemon_that_ended_shows_its_last_words(call: Calls) -> None:
    call.start("cloud", "import sys; print('loading'); sys.exit('error: no such catalogue')")
    state = call("wait", name="cloud", timeout_s=20.0)
    assert not state["running"]
    assert state["log"] == "error: no such catalogue"


def test_a_process_that_took_over_the_id_is_left_alone(call: Calls, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEPS]) as stranger:
        record = {"pid": stranger.pid, "started": 1, "groups": []}
        (tmp_path / "edge.run").write_text(json.dumps(record))
        assert not call("state")["edge"]["running"]
        assert call("stop")["stopped"] == 0
        assert stranger.poll() is None
        stranger.send_signal(signal.SIGKILL)


def test_a_system_that_does_not_tell_when_processes_started_has_no_strangers_stopped(call: Calls) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEPS]) as stranger:
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(agent, "stat_fields", lambda _pid: [])
            assert not agent.alive({"pid": stranger.pid, "started": None})
        stranger.kill()


def test_a_program_that_is_missing_is_one_line(call: Calls) -> None:
    answer = call("start", name="edge", command=["/no/such/program"])
    assert "edge cannot be started: FileNotFoundError" in answer["error"]
    assert call("state") == {}


def test_the_same_name_runs_once(call: Calls) -> None:
    pid = call.start("edge", SLEEPS)
    answer = call("start", name="edge", command=["true"])
    assert answer["error"] == f"edge is already running, as process {pid}"


def test_a_waiting_daemon_gets_its_line(call: Calls) -> None:
    call.start("phone", "import sys; print('got', sys.stdin.readline())", input=True)
    call("write_line", name="phone", line="go")
    assert call("wait", name="phone", timeout_s=20.0, until="ended")["log"] == "got go"


def test_a_folder_that_is_not_of_a_testbed_is_never_deleted(call: Calls, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    call("clear", folder_too=True)
    assert (tmp_path / "precious").exists()
    (tmp_path / agent.MARK).touch()
    call("clear", folder_too=True)
    assert not tmp_path.exists()


def test_what_a_node_lacks_is_listed(call: Calls) -> None:
    facts = call("check", disk_mb=10**12)
    assert len(facts["missing"]) == 1
    assert "MB of disk" in facts["missing"][0]


@pytest.mark.system
@pytest.mark.needs("cgroups")
def test_a_limited_daemon_gets_its_share_of_cpu_and_memory(call: Calls) -> None:
    group = group_of(own_id())
    limits = {"group": group, "cpu_us": cpu_time(0.2), "memory_bytes": 100 * 2**20}
    try:
        pid = call.start("burns", "import signal; signal.alarm(60)\nwhile True: pass", limits=limits)
        process = psutil.Process(pid)
        process.cpu_percent()
        share = process.cpu_percent(interval=1.0) / 100
        assert 0 < share < 0.35
        call.start("greedy", f"held = bytearray(300 * 2**20)\n{SLEEPS}", limits=limits)
        state = call("wait", name="greedy", timeout_s=30.0, until="ended")
        assert not state["running"]
    finally:
        call("stop", grace_s=0.0)
        call("clear", group=group)
    assert not any(Path(folder).exists() for folder in agent.groups_of(group))


@pytest.mark.system
@pytest.mark.needs("cgroups")
def test_work_of_200_ms_on_half_a_core_is_held_up_again_and_again(call: Calls) -> None:
    group = group_of(own_id())
    try:
        call.start("works", WORKS, limits={"group": group, "cpu_us": cpu_time(0.5), "memory_bytes": 0})
        call("wait", name="works", timeout_s=30.0)
        counters = dict(
            line.split() for line in (Path(agent.groups_of(group)[0]) / "cpu.stat").read_text().splitlines()
        )
        assert int(counters["nr_throttled"]) > 20, "with 25 of every 50 ms it would be 8 times"
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
def test_both_versions_of_cgroups_are_told_apart(
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
