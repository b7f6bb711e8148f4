"""The daemons that a command asks: of the settings with their keys, of this machine, or given ones."""

from pathlib import Path

import pytest
import typer

from nearsight.__main__ import SETTINGS_CLASSES
from nearsight.common.errors import ConfigurationError, InvalidArgument
from nearsight.common.operation.addresses import Address, addresses
from nearsight.common.operation.cli import show_answers
from nearsight.common.operation.status import DaemonStatus
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.security import ClientSecurity, generate_keys
from nearsight.device.peers.report import OFF, DevicePeers

ALL = tuple(DEFAULT_ENDPOINTS)
PHONE = '[device.edge]\nendpoint = "tcp://10.0.0.5:7100"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("typer.get_app_dir", lambda _name: str(tmp_path / "none"))
    return tmp_path


def asked(settings: str, *endpoints: str, **arguments: object) -> tuple[Address, ...]:
    Path("nearsight.toml").write_text(settings)
    return addresses(SETTINGS_CLASSES, ALL, endpoints, **arguments)  # type: ignore[arg-type]


def test_without_settings_the_default_addresses_are_asked_and_no_daemon_is_expected() -> None:
    assert asked("") == tuple(Address(DEFAULT_ENDPOINTS[name], name, expected=False) for name in ALL)


def test_a_daemon_with_settings_is_expected_at_its_address() -> None:
    cloud, edge, _ = asked('[cloud.server]\nlisten = "tcp://0.0.0.0:7700"\n[edge]\ncloud = "tcp://c:1"\n')[1:]
    assert (cloud.daemon, cloud.endpoint, cloud.expected) == ("cloud", "tcp://127.0.0.1:7700", True)
    assert (edge.endpoint, edge.expected) == (DEFAULT_ENDPOINTS["edge"], True)


def test_the_edge_of_a_phone_is_expected_but_no_daemon_on_the_phone() -> None:
    cloud, edge, device = asked(PHONE)
    assert (cloud.expected, edge, device.expected) == (False, Address("tcp://10.0.0.5:7100", "edge"), False)


def test_a_given_endpoint_is_expected_and_uses_the_keys_of_the_settings(folder: Path) -> None:
    generate_keys(folder, "phone")
    public = generate_keys(folder, "edge").public_key
    keys = f'public_key = "{public}"\n[device.security]\nsecret_key_file = "phone.key_secret"\n'
    edge, other = asked(PHONE + keys, "tcp://10.0.0.5:7100", "tcp://10.0.0.6:7100")
    assert edge.security == ClientSecurity(Path("phone.key_secret"), public)
    assert (other.security, other.expected) == (None, True)
    (mine,) = asked(PHONE + keys, "tcp://10.0.0.5:7100", key=Path("other.key_secret"))
    assert mine.security == ClientSecurity(Path("other.key_secret"), public)


def test_the_public_key_of_a_daemon_of_this_machine_comes_from_its_secret_file(folder: Path) -> None:
    public = generate_keys(folder, "edge").public_key
    settings = '[edge.security]\nsecret_key_file = "edge.key_secret"\nallowed_clients = "keys"\n'
    edge = asked(settings)[1]
    assert edge.security == ClientSecurity(Path("edge.key_secret"), public)


@pytest.mark.parametrize(
    ("endpoints", "arguments", "says"),
    [
        ((), {"server_keys": ["a"]}, "belongs to an endpoint"),
        (("tcp://a:1", "tcp://b:1", "tcp://c:1"), {"server_keys": ["a", "b"], "key": Path("k")}, "2 times"),
        (("tcp://a:1",), {"server_keys": ["a"]}, "go together"),
        (("tcp://a:1",), {"key": Path("k")}, "go together"),
    ],
)
def test_keys_that_fit_no_endpoint_are_refused(
    endpoints: tuple[str, ...], arguments: dict[str, object], says: str
) -> None:
    with pytest.raises((ConfigurationError, InvalidArgument), match=says) as refused:
        asked("", *endpoints, **arguments)
    assert refused.value.advice


@pytest.mark.parametrize(
    ("answering", "expected", "code"),
    [({"edge"}, {"edge"}, 0), ({"edge"}, {"edge", "cloud"}, 4), ({"edge"}, set(), 0), (set(), set(), 4)],
)
def test_the_exit_code_depends_only_on_expected_and_running_daemons(
    answering: set[str], expected: set[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    daemons = [Address(f"tcp://{name}:1", name, expected=name in expected) for name in ALL]
    answers = [
        DaemonStatus(one.endpoint, ready=True) if one.daemon in answering else DaemonStatus("", error="none")
        for one in daemons
    ]
    shown: list[DaemonStatus] = []
    with pytest.raises(typer.Exit) as end:
        show_answers(
            daemons,
            lambda *_, **__: answers,
            shown.append,
            lambda one: one.ready,
            as_json=False,
        )
    assert end.value.exit_code == code
    assert len(shown) == len(answering | expected)
    absent = [name for name in ALL if name not in answering | expected]
    assert ("no answer from daemons that are not configured" in capsys.readouterr().out) is bool(absent)


def test_a_daemon_that_runs_without_the_service_is_shown_and_not_counted_as_absent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[DevicePeers] = []
    with pytest.raises(typer.Exit) as end:
        show_answers(
            [Address("tcp://device:1", "device", expected=False)],
            lambda *_, **__: [DevicePeers("tcp://device:1", error=OFF)],
            shown.append,
            lambda one: not one.error,
            as_json=False,
        )
    assert end.value.exit_code == 4
    assert [one.error for one in shown] == [OFF]
    assert capsys.readouterr() == ("", "")
