"""The command `nearsight edge`: as a process, and its errors at the start."""

import json
from pathlib import Path

import pytest

from nearsight.__main__ import main
from support.daemon_process import daemon_process
from support.edge import EdgeClient, ScriptedCloud, exhibit, photo


def test_the_daemon_announces_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    cloud = ScriptedCloud([exhibit(0)])
    settings = ["recognition.query_features=300", "metrics_listen=", "log_format=json"]
    flags = [part for setting in settings for part in ("--set", setting)]
    try:
        with daemon_process(tmp_path, "edge", "--cloud", cloud.endpoint, "--k-max", "5", *flags) as edge:
            with EdgeClient(edge.endpoint) as device:
                assert device.ask(photo(0)) == ("00", "cloud")
            assert edge.stop() == 0
    finally:
        cloud.stop()
    events = [json.loads(line)["event"] for line in edge.log.splitlines()]
    assert "ready" in events
    assert events[-1] == "stopped"
    assert not edge.announcement.exists()


def test_an_edge_without_a_cloud_names_the_missing_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["edge", "--set", "metrics_listen="]) == 5
    assert "--cloud" in capsys.readouterr().err


def test_an_invalid_profile_is_refused_with_the_command_that_creates_one(
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


@pytest.mark.parametrize("place", [".", "/", "folder"])
def test_a_folder_is_no_file_for_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    command = ["edge", "--cloud", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"]
    assert main([*command, "--state", place, "--set", "metrics_listen="]) == 5
    said = f"error: {place} is a folder; name a database file, such as edge.db"
    assert capsys.readouterr().err.splitlines()[-1] == said


@pytest.mark.parametrize("here", ["tcp://127.0.0.1:7100", "tcp://localhost:7100"])
def test_an_edge_is_not_its_own_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: str
) -> None:
    monkeypatch.chdir(tmp_path)
    listen = "tcp://127.0.0.1:7100"
    assert main(["edge", "--cloud", here, "--listen", listen, "--set", "metrics_listen="]) == 5
    said = f"{here} is the address of this edge itself, and not of its cloud; give the address of the cloud"
    assert capsys.readouterr().err == f"error: {said}\n"
