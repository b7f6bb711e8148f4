"""Supervision of child processes: readiness, errors, CPU time, and their end in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.framework.signals import termination_as_interrupt
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.shaper import ShaperSettings
from nearsight.experiments.rig.processes import ProcessGroup
from support.leash import ended
from support.waiting import wait_until

ANNOUNCES = """
import json, pathlib, signal, sys
file = pathlib.Path(sys.argv[sys.argv.index("--announce") + 1])
file.with_suffix(".part").write_text(json.dumps({"endpoint": "tcp://here:1"}))
file.with_suffix(".part").rename(file)
signal.pause()
"""
FAILS = "import sys; print('loading'); print('error: no such catalogue', file=sys.stderr); sys.exit(5)"


def test_a_daemon_is_ready_when_it_announces_itself(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        daemon = group.start("edge", ["-c", ANNOUNCES])
        assert daemon.wait_ready() == {"endpoint": "tcp://here:1"}
        daemon.check_alive()
        assert daemon.stop(grace_s=100.0) == -signal.SIGTERM


def test_the_error_of_a_daemon_that_ends_at_its_start_has_the_end_of_its_log_in_one_line(
    tmp_path: Path,
) -> None:
    with ProcessGroup(tmp_path) as group, pytest.raises(SetupError) as failure:
        group.start("cloud", ["-c", FAILS]).wait_ready()
    message = str(failure.value)
    assert "cloud ended with exit status 5 before it was ready" in message
    assert "error: no such catalogue" in message
    assert str(tmp_path / "cloud.log") in message
    assert "\n" not in message


def test_a_daemon_that_does_not_announce_itself_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        daemon = group.start("edge", ["-c", "import signal; signal.pause()"])
        with pytest.raises(SetupError, match="edge was not ready within 0 s"):
            daemon.wait_ready(timeout_s=0.1)
    assert ended(daemon.pid)


def test_a_daemon_whose_log_cannot_be_written_is_an_error_and_leaves_no_descriptor_open(
    tmp_path: Path,
) -> None:
    (tmp_path / "edge.log").mkdir()
    before = psutil.Process().num_fds()
    with ProcessGroup(tmp_path) as group, pytest.raises(SetupError, match=r"edge\.log"):
        group.start("edge", ["-c", ANNOUNCES])
    assert psutil.Process().num_fds() == before


def test_all_processes_are_stopped_if_the_block_fails(tmp_path: Path) -> None:
    pids = []
    with pytest.raises(KeyboardInterrupt), ProcessGroup(tmp_path) as group:
        for name in ("cloud", "edge"):
            daemon = group.start(name, ["-c", ANNOUNCES])
            daemon.wait_ready()
            pids.append(daemon.pid)
        raise KeyboardInterrupt
    assert all(ended(pid) for pid in pids)


def test_a_daemon_that_ends_after_its_start_is_an_error(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        daemon = group.start("edge", ["-c", ANNOUNCES])
        daemon.wait_ready()
        daemon.send_signal(signal.SIGKILL)
        wait_until(lambda: daemon.exit_code is not None)
        with pytest.raises(Unavailable, match="edge was ended by signal 9"):
            daemon.check_alive()


def test_cpu_time_includes_children_and_remains_readable_after_the_end(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {busy!r} + 'input()']).wait()"
    with ProcessGroup(tmp_path) as group:
        daemon = group.start("edge", ["-c", parent], capture=True)
        wait_until(lambda: daemon.cpu_s() >= 0.3, what="the CPU time of the child")
        daemon.write_line("")
        daemon.wait(100)
    assert daemon.cpu_s() >= 0.3


def test_cpu_time_includes_children_that_have_ended(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}]); print(); input()"
    with ProcessGroup(tmp_path) as group:
        daemon = group.start("edge", ["-c", parent], capture=True)
        next(daemon.output)
        assert daemon.cpu_s() >= 0.3


def test_daemons_do_not_inherit_settings_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__CLOUD", "tcp://elsewhere:1")
    monkeypatch.setenv("OF_THE_MACHINE", "kept")
    with ProcessGroup(tmp_path) as group:
        daemon = group.start(
            "edge", ["-c", "import json, os; print(json.dumps(dict(os.environ)))"], capture=True
        )
        environment = json.loads("".join(daemon.output))
    assert "NEARSIGHT_EDGE__CLOUD" not in environment
    assert environment["OF_THE_MACHINE"] == "kept"
    assert environment["OMP_NUM_THREADS"] == "1"


def test_a_captured_process_reads_and_writes_lines(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        device = group.start("device", ["-c", "print('got', input())"], capture=True)
        device.write_line("go")
        assert list(device.output) == ["got go\n"]
        device.wait(100)


def test_the_error_of_waiting_for_a_failed_process_has_the_end_of_its_log(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        device = group.start("device", ["-c", FAILS])
        with pytest.raises(SetupError, match=r"device ended with exit status 5.*no such catalogue"):
            device.wait(100)


def test_children_end_if_their_parent_is_killed_with_sigkill(tmp_path: Path) -> None:
    parent_code = f"""
import pathlib
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.shaper import ShaperSettings
from nearsight.experiments.rig.processes import ProcessGroup
with ProcessGroup(pathlib.Path({str(tmp_path)!r})) as group:
    daemon = group.start("edge", ["-c", {ANNOUNCES!r}])
    daemon.wait_ready()
    print(daemon.pid, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent_code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert psutil.pid_exists(child_pid)
        parent.kill()
    if sys.platform.startswith("linux"):
        wait_until(lambda: ended(child_pid), what="the child's end")


def test_sigterm_runs_clean_up_code() -> None:
    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_shaper_daemon_announces_its_measured_error_and_writes_its_counters(tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    with ProcessGroup(tmp_path) as group:
        shape = LinkShape(rtt_ms=2.0, up_mbps=200.0, down_mbps=200.0)
        shaper = group.start("shaper", ShaperSettings("tcp://127.0.0.1:1", shape, str(stats)).arguments())
        announced = shaper.wait_ready()
        assert str(announced["endpoint"]).startswith("tcp://127.0.0.1:")
        calibration = announced["calibration"]
        assert isinstance(calibration, dict)
        assert {"rtt_error_ms", "up_error_percent", "down_error_percent"} <= set(calibration)
        assert shaper.stop(grace_s=100.0) == 0
    assert '"bytes": 0' in stats.read_text()
