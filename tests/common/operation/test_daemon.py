"""How every daemon starts, announces itself, survives a crashed thread and stops, in real processes."""

import json
import os
import resource
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearsight.common.config.base import DaemonSettings
from nearsight.common.errors import AddressInUse, ConfigurationError
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.operation.daemon import _stop_signal, run_daemon, write_announcement
from support.leash import leashed
from support.waiting import LONG_S, wait_until

LESS_DESCRIPTORS = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
"""
SCRIPT = """
import sys, threading, time
from pathlib import Path
from nearsight.common.config.base import DaemonSettings
from nearsight.common.operation import daemon
from nearsight.common.errors import AddressInUse

class ExampleDaemon:
    endpoint = "tcp://127.0.0.1:4321"
    def start(self):
        if mode == "crashing":
            threading.Thread(target=lambda: 1 / 0, name="worker-1").start()
    def stop(self, grace_s):
        if mode in ("hanging", "late"):
            time.sleep(600)
        print("released", flush=True)

mode, announce = sys.argv[1:]
daemon.STOP_MARGIN_S = 0.1
settings = DaemonSettings(log_format="json", stop_grace_s=0 if mode == "late" else 600)
daemon.run_daemon("edge", settings, lambda metrics: ExampleDaemon(), announce=Path(announce))
print("returned", flush=True)
"""


@contextmanager
def running(mode: str, announce: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*before, *leashed("-c", LESS_DESCRIPTORS + SCRIPT, mode, str(announce))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        wait_until(lambda: announce.exists() or process.poll() is not None, timeout_s=60, what="announcement")
        yield process
    finally:
        process.kill()
        process.communicate()


def log_lines(stderr: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in stderr.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_daemon_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    announce = tmp_path / "edge.json"
    with running("plain", announce, "env", "--default-signal") as process:
        announced = json.loads(announce.read_text())
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stdout.split() == ["released", "returned"]
    assert soft == hard, "the daemon has raised its limit of descriptors"
    assert announced["daemon"] == "edge"
    assert announced["endpoint"] == "tcp://127.0.0.1:4321"
    assert announced["pid"] == process.pid
    assert not announce.exists()
    events = {line["event"]: line for line in log_lines(stderr)}
    assert list(events) == ["ready", "stopping", "stopped"]
    assert events["ready"]["endpoint"] == "tcp://127.0.0.1:4321"
    assert events["stopping"]["signal"] == number.name
    assert all(line["daemon"] == "edge" for line in events.values())


def test_a_signal_that_does_not_interrupt_the_wait_ends_it() -> None:
    waiting = threading.Event()

    def receive() -> None:  # a signal that arrives in another thread, or immediately before the wait
        waiting.wait(LONG_S)
        signal.raise_signal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool, _stop_signal() as wait_for_signal:
        received = pool.submit(receive)
        waiting.set()
        assert wait_for_signal() is signal.SIGTERM
        received.result(LONG_S)
    assert signal.set_wakeup_fd(-1) == -1


def test_nohup_keeps_a_daemon_that_loses_its_terminal(tmp_path: Path) -> None:
    with running("plain", tmp_path / "edge.json", "nohup") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"SIGTERM"' in stderr


def test_a_second_signal_ends_a_daemon_that_hangs_while_it_stops(tmp_path: Path) -> None:
    with running("hanging", tmp_path / "edge.json") as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGTERM)
        while '"stopping"' not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_stop_that_exceeds_its_grace_period_is_aborted(tmp_path: Path) -> None:
    with running("late", tmp_path / "edge.json") as process:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert log_lines(stderr)[-1]["event"] == "stop did not finish in time, exiting"


def test_a_crashed_thread_is_logged_and_counted_and_the_daemon_continues(tmp_path: Path) -> None:
    announce = tmp_path / "edge.json"
    with running("crashing", announce) as process:
        address = json.loads(announce.read_text())["metrics"]

        def crashes() -> bool:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                return b"nearsight_thread_crashes_total 1.0" in answer.read()

        wait_until(crashes, what="the count of crashes")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    crash = next(line for line in log_lines(stderr) if line["event"] == "thread crashed")
    assert (crash["thread"], crash["daemon"]) == ("worker-1", "edge")
    assert "ZeroDivisionError" in str(crash["exception"])


class Refusing:
    """A daemon that cannot start."""

    endpoint = ""

    def start(self) -> None:
        raise AddressInUse("port 1 is in use", advice="choose another")

    def stop(self, grace_s: float) -> None:
        raise AssertionError("what was not started is not stopped")


def test_a_daemon_that_cannot_start_raises_its_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    made: list[DaemonMetrics] = []

    def build(metrics: DaemonMetrics) -> Refusing:
        made.append(metrics)
        return Refusing()

    with pytest.raises(AddressInUse):
        run_daemon("edge", DaemonSettings(log_level="ERROR"), build, announce=tmp_path / "edge.json")
    assert not (tmp_path / "edge.json").exists()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert made[0].start_http("127.0.0.1:0")
    made[0].stop_http()


class Idle:
    """A daemon without work."""

    endpoint = "tcp://x"

    def start(self) -> None:
        pass

    def stop(self, grace_s: float) -> None:
        pass


@pytest.mark.parametrize("announce", ["folder", "file/edge.json"])
def test_an_announcement_that_was_not_written_is_not_deleted(tmp_path: Path, announce: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="give --announce a file in a writable folder"):
        run_daemon("edge", DaemonSettings(log_level="ERROR"), lambda _: Idle(), announce=tmp_path / announce)


def test_an_announcement_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot announce"):
        write_announcement(tmp_path / "missing" / "edge.json", "edge", "tcp://x", "")


def test_an_announcement_replaces_an_older_one_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "edge.json"
    path.write_text("old")
    write_announcement(path, "edge", "tcp://127.0.0.1:1", "127.0.0.1:2")
    assert json.loads(path.read_text()) == {
        "daemon": "edge",
        "endpoint": "tcp://127.0.0.1:1",
        "metrics": "127.0.0.1:2",
        "pid": os.getpid(),
    }
    assert list(tmp_path.iterdir()) == [path]
