"""`nearsight status`: answers of daemons, absent daemons, and exit codes."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearsight import __version__
from nearsight.__main__ import main
from nearsight.common.operation.status import HealthService, ask_status, format_bytes, format_duration
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.client import Stub
from nearsight.common.rpc.security import ServerSecurity, generate_keys
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.protos import health_pb2
from support.inprocess import in_process_channel
from support.rpc import ECHO, Gate, ScriptedEcho, serving, unused_endpoint
from support.rpc import text as echo_text
from support.waiting import wait_until


def status(*arguments: str) -> int:
    """The exit code of `nearsight status` with a timeout for busy machines."""
    return main(["status", *arguments, "--timeout", "60"])


@contextmanager
def daemon(name: str, *, ready: bool = True, security: ServerSecurity | None = None) -> Iterator[str]:
    """The endpoint of a server with only a health service."""
    service = HealthService(name, lambda: ready, lambda: (("objects", "500"), ("[queue]", "0")))
    with RpcServer([service], tier=name, settings=ServerSettings(), security=security) as server:
        yield server.endpoint


@pytest.fixture
def absent() -> str:
    return unused_endpoint()


def test_every_daemon_reports_its_name_version_and_state() -> None:
    with daemon("cloud") as cloud, daemon("edge", ready=False) as edge:
        first, second = ask_status([cloud, edge], timeout_s=60)
    assert (first.daemon, first.version, first.ready, first.error) == ("cloud", __version__, True, "")
    assert first.details == (("objects", "500"), ("[queue]", "0"))
    assert (second.daemon, second.ready) == ("edge", False)
    assert first.uptime_s > 0


def test_the_exit_code_is_0_only_if_all_are_ready(absent: str, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon("cloud") as cloud, daemon("edge", ready=False) as edge:
        assert status(cloud) == 0
        assert status(cloud, edge) == 4
        assert status(cloud, absent) == 4
    table = capsys.readouterr().out
    for text in ("cloud", "not ready", "no answer", "objects: 500", "[queue]: 0"):
        assert text in table


def test_a_long_status_fits_80_columns(
    absent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    details = [("cloud", f"tcp://{'cloud.' * 20}example:7000"), ("why", "so " * 60)]
    service = HealthService("edge", lambda: True, lambda: details)
    with RpcServer([service], tier="edge", settings=ServerSettings()) as edge, daemon("cloud") as cloud:
        assert status(edge.endpoint, cloud, absent) == 4
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= 80
    heads = [line for line in shown if not line.startswith(" ")]
    assert [head.split()[0] for head in heads] == ["edge", "cloud", f"{absent}:"]


def test_control_characters_of_a_status_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    service = HealthService("edge\x1b[2J", lambda: True, lambda: [("a\x1b[31m", "b\r\x9bc")])
    with RpcServer([service], tier="edge", settings=ServerSettings()) as edge:
        assert status(edge.endpoint) == 0
        assert status(edge.endpoint, "--json") == 0
    assert not set("\x1b\r\x9b") & set(capsys.readouterr().out)


def test_all_daemons_of_the_settings_are_asked_each_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {name: generate_keys(tmp_path, name) for name in ("cloud", "edge", "phone")}
    for name, client in (("cloud", "edge"), ("edge", "phone")):
        allow_client(keys[client].public_file, tmp_path / f"{name}-clients")
    security = {name: ServerSecurity(keys[name].secret_file, tmp_path / f"{name}-clients") for name in keys}
    with (
        daemon("cloud", security=security["cloud"]) as cloud,
        daemon("edge", security=security["edge"]) as edge,
    ):
        (tmp_path / "nearsight.toml").write_text(
            f'[edge]\ncloud = "{cloud}"\ncloud_public_key = "cloud.key"\n'
            f'[edge.server]\nlisten = "{edge}"\n[edge.security]\nsecret_key_file = "edge.key_secret"\n'
            f'[device.edge]\nendpoint = "{edge}"\npublic_key = "{keys["edge"].public_key}"\n'
            f'[device.server]\nlisten = "{absent}"\n[device.security]\nsecret_key_file = "phone.key_secret"\n'
        )
        assert status("--json") == 4
        answers = {one["endpoint"]: one["daemon"] for one in json.loads(capsys.readouterr().out)}
        assert status(cloud, edge) == 0
        mine = ["--key", str(keys["phone"].secret_file)]
        both = ["--server-key", keys["edge"].public_key, "--server-key", str(keys["cloud"].public_file)]
        assert status(edge, cloud, *mine, *both) == 4
    assert answers == {cloud: "cloud", edge: "edge", absent: ""}
    shown = capsys.readouterr().out
    assert f"edge {edge}: ready" in shown
    assert f"{cloud}: no answer" in shown


def test_the_status_is_available_as_json(absent: str, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon("cloud") as cloud:
        assert status(cloud, absent, "--json") == 4
    first, second = json.loads(capsys.readouterr().out)
    assert (first["endpoint"], first["ready"], first["details"]) == (
        cloud,
        True,
        {"objects": "500", "[queue]": "0"},
    )
    assert (second["ready"], bool(second["error"])) == (False, True)


def test_a_daemon_with_encryption_answers_clients_with_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, client = generate_keys(tmp_path, "edge"), generate_keys(tmp_path, "admin")
    allow_client(client.public_file, tmp_path / "clients")
    with daemon("edge", security=ServerSecurity(server.secret_file, tmp_path / "clients")) as endpoint:
        keys = ["--key", str(client.secret_file), "--server-key", str(server.public_file)]
        assert status(endpoint, *keys) == 0
        assert status(endpoint) == 4
        assert status(endpoint, *keys[:2]) == 2
        assert "objects: 500" in capsys.readouterr().out
        allow_client(client.public_file, tmp_path / "clients", catalogues=["museum"])

        def without_details() -> bool:
            asked = status(endpoint, *keys)  # a connection that has the old right is ended
            return asked == 0 and "objects" not in capsys.readouterr().out

        wait_until(without_details, what="the new right")
        assert status(endpoint, *keys[:2]) == 2
    assert "--key and --server-key go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (3600 * 3 + 300, "3 h 5 min"), (86400 * 2, "2 d 0 h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_000_000, "12.0 MB"), (5_000_000_000_000, "5000.0 GB")],
)
def test_bytes_are_short(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_health_is_answered_while_all_workers_are_busy_and_the_queue_is_full() -> None:
    gate = Gate()
    health = HealthService("cloud", lambda: True)
    with (
        serving(ScriptedEcho(gate), health, workers=1, queue_limit=1, listen="tcp://127.0.0.1:0") as server,
        in_process_channel(server, client_id="test") as channel,
    ):
        echo = Stub(channel, ECHO).echo
        busy = [echo.future(echo_text(), timeout_s=60)]
        assert gate.entered.acquire(timeout=60)
        busy.append(echo.future(echo_text(), timeout_s=60))
        stub = Stub(channel, HealthService.descriptor)
        assert stub.check(health_pb2.HealthRequest(), timeout_s=60).message.ready
        gate.open.set()
        for future in busy:
            future.result(60)
