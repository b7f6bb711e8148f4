"""The command `nearsight edge`, as a process and where it cannot start."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.experiments.testbed.processes import leashed
from support.edge import EdgeClient, ScriptedCloud, exhibit, photo
from support.waiting import wait_until


def test_the_daemon_announces_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    cloud = ScriptedCloud([exhibit(0)])
    announced = tmp_path / "edge.json"
    settings = ["recognition.query_features=300", "metrics_listen=", "log_format=json"]
    flags = [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(
        [
            *leashed("-m", "nearsight", "edge", "--cloud", cloud.endpoint),
            *("--listen", "tcp://127.0.0.1:0", "--k-max", "5", "--announce", str(announced), *flags),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        wait_until(announced.exists, what="the announcement", timeout_s=30)
        with EdgeClient(json.loads(announced.read_text())["endpoint"]) as device:
            assert device.ask(photo(0)) == ("00", "cloud")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    finally:
        process.kill()
        cloud.stop()
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert "ready" in events
    assert events[-1] == "stopped"
    assert not announced.exists()


def test_an_edge_without_a_cloud_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["edge", "--set", "metrics_listen="]) == 5
    assert "--cloud" in capsys.readouterr().err


def test_a_profile_that_is_none_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text('{"version": 99}')
    command = ["edge", "--cloud", "tcp://127.0.0.1:1", "--set", "metrics_listen="]
    assert main([*command, "--profile", "p.json"]) == 5
    shown = capsys.readouterr().err
    assert "version" in shown
    assert "nearsight profile" in shown
    assert main([*command, "--profile", "absent.json"]) == 2
