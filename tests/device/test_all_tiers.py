"""The SDK with a real cloud and a real edge that is killed and restarted; and with keys."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nearsight import (
    ClientSecurity,
    ConfigurationError,
    InvalidArgument,
    NearsightError,
    NotFound,
    Recognition,
    Recognizer,
    RecognizerSecurity,
    RecognizerSettings,
    StatusCode,
    Unauthenticated,
)
from nearsight.__main__ import main
from nearsight.common.config.base import SecuritySettings
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.security import ServerSecurity, generate_keys
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.device.settings import DeviceSettings, TierSettings
from support.cloud import CloudClient, running_cloud
from support.daemon_process import DaemonProcess, daemon_process
from support.pictures import SIDE_PX, broken_images, photo_jpeg, picture_jpeg
from support.recognition_server import ScriptedRecognition, always
from support.recognizers import PATIENT, QUICK
from support.waiting import LONG_S, wait_until

PHOTO = photo_jpeg(2)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    database = tmp_path_factory.mktemp("cloud") / "cloud.db"
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"{number:02d}": [picture_jpeg(number)] for number in range(1, 4)})
        yield daemon.endpoint


def edge_process(
    cloud: str, folder: Path, listen: str = "tcp://127.0.0.1:0"
) -> AbstractContextManager[DaemonProcess]:
    """A real edge without a cache of its own, so that it needs no profile."""
    return daemon_process(folder, "edge", "--cloud", cloud, "--k-max", "0", listen=listen)


def tiers(recognition: Recognition) -> list[str]:
    assert recognition.object_id == "02"
    return [hop.tier for hop in recognition.hops]


def test_an_edge_that_hangs_delays_three_requests_and_is_then_avoided(cloud: str, tmp_path: Path) -> None:
    # Its connection stays open for a minute: a large frame over a slow network may take as long.
    calm = BreakerSettings(cooldown_s=LONG_S, longest_cooldown_s=LONG_S)
    with (
        edge_process(cloud, tmp_path) as edge,
        Recognizer(edge.endpoint, cloud, "museum", settings=RecognizerSettings(breaker=calm)) as sdk,
    ):
        assert "edge" in tiers(sdk.recognize_blocking(PHOTO, timeout_s=LONG_S))
        edge.process.send_signal(signal.SIGSTOP)
        asked: list[list[str]] = []
        while not asked or "edge" in asked[-1]:
            answer = sdk.recognize_blocking(PHOTO, timeout_s=2.0)
            assert answer.object_id == "02"
            asked.append([attempt.tier for attempt in answer.attempts])
        assert asked == [["edge", "cloud"]] * 3 + [["cloud"]]


@pytest.mark.system
def test_requests_are_answered_while_the_edge_is_killed_and_restarted(cloud: str, tmp_path: Path) -> None:
    with (
        edge_process(cloud, tmp_path) as edge,
        Recognizer(endpoint := edge.endpoint, cloud, "museum", settings=QUICK) as sdk,
    ):
        assert tiers(sdk.recognize_blocking(PHOTO)) == ["cloud", "edge", "device"]
        outcomes: list[Recognition | NearsightError] = []
        for number in range(20):
            sdk.recognize(PHOTO, outcomes.append)
            if number == 10:
                edge.process.kill()
        wait_until(lambda: len(outcomes) == 20, what="20 callbacks")
        assert [outcome for outcome in outcomes if not isinstance(outcome, Recognition)] == []
        assert {outcome.object_id for outcome in outcomes if isinstance(outcome, Recognition)} == {"02"}
        assert tiers(sdk.recognize_blocking(PHOTO)) == ["cloud", "device"]
        with edge_process(cloud, tmp_path, endpoint):
            wait_until(
                lambda: "edge" in tiers(sdk.recognize_blocking(PHOTO)),
                what="an answer of the edge",
            )
        assert len(outcomes) == 20


def test_the_cloud_answers_without_an_edge_and_with_correct_corners(cloud: str) -> None:
    with Recognizer(None, cloud, "museum", settings=PATIENT) as sdk:
        recognition = sdk.recognize_blocking(PHOTO)
        assert (recognition.answered_by, recognition.object_id) == ("cloud", "02")
        assert recognition.corners is not None
        expected = [(30, 40), (SIDE_PX + 20, 25), (SIDE_PX + 35, SIDE_PX + 40), (20, SIDE_PX + 30)]
        for (x, y), (x0, y0) in zip(recognition.corners, expected, strict=True):
            assert abs(x - x0) < 6
            assert abs(y - y0) < 6
        assert not sdk.recognize_blocking(photo_jpeg(77)).known


def test_broken_images_are_invalid_and_images_without_content_are_unknown(cloud: str) -> None:
    broken = broken_images()
    with Recognizer(None, cloud, "museum", settings=PATIENT) as sdk:
        for kind in ("1 x 1", "black"):
            assert not sdk.recognize_blocking(broken.pop(kind)).known, kind
        for image in broken.values():
            with pytest.raises(InvalidArgument):
                sdk.recognize_blocking(image)
        assert sdk.recognize_blocking(PHOTO).object_id == "02"


def test_a_catalogue_that_does_not_exist_is_not_found(cloud: str) -> None:
    with Recognizer(None, cloud, "zoo", settings=PATIENT) as sdk, pytest.raises(NotFound, match="zoo"):
        sdk.recognize_blocking(PHOTO)


@pytest.fixture
def locked_edge(tmp_path: Path) -> Iterator[str]:
    """An edge that lets in the key ``phone`` only."""
    for name in ("edge", "phone", "stranger"):
        generate_keys(tmp_path, name)
    allow_client(tmp_path / "phone.key", tmp_path / "allowed")
    server = RpcServer(
        [ScriptedRecognition(always("edge"))],
        tier="edge",
        settings=ServerSettings(queue_timeout_s=LONG_S),
        security=ServerSecurity(tmp_path / "edge.key_secret", tmp_path / "allowed"),
    )
    with server:
        yield server.endpoint


def keys(folder: Path, own: str, server: str = "edge") -> RecognizerSecurity:
    return RecognizerSecurity(edge=ClientSecurity(folder / f"{own}.key_secret", folder / f"{server}.key"))


@pytest.mark.parametrize(("own", "code"), [("phone", 0), ("stranger", 3)])
def test_keys_are_given_to_the_command_as_flags(
    locked_edge: str, tmp_path: Path, own: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    arguments = ["recognize", str(tmp_path / "photo.jpg"), "--edge", locked_edge]
    own_key, edge_key = str(tmp_path / f"{own}.key_secret"), str(tmp_path / "edge.key")
    assert main([*arguments, "--key", own_key, "--edge-key", edge_key]) == code
    assert len(capsys.readouterr().err.splitlines()) == (1 if code else 0)


@pytest.mark.parametrize(("own", "server"), [("stranger", "edge"), ("phone", "stranger")])
def test_a_wrong_key_is_an_error_or_leaves_the_cloud_to_answer(
    locked_edge: str, cloud: str, tmp_path: Path, own: str, server: str
) -> None:
    security = keys(tmp_path, own, server)
    with (
        Recognizer(locked_edge, None, "museum", settings=PATIENT, security=security) as sdk,
        pytest.raises(Unauthenticated) as caught,
    ):
        sdk.recognize_blocking(PHOTO)
    assert caught.value.advice
    with Recognizer(locked_edge, cloud, "museum", settings=PATIENT, security=security) as sdk:
        recognition = sdk.recognize_blocking(PHOTO)
        assert recognition.answered_by == "cloud"
        assert recognition.attempts[0].outcome is StatusCode.UNAUTHENTICATED
        assert [attempt.tier for attempt in sdk.recognize_blocking(PHOTO).attempts] == ["cloud"]


def test_settings_need_an_own_key_for_the_key_of_a_tier(tmp_path: Path) -> None:
    edge = TierSettings(endpoint="tcp://10.0.0.5:7100", public_key="edge.key")
    with pytest.raises(ConfigurationError, match=r"edge\.public_key"):
        DeviceSettings(edge=edge).client_security()
    own = SecuritySettings(secret_key_file=tmp_path / "phone.key_secret")
    security = DeviceSettings(edge=edge, security=own).client_security()
    assert security == RecognizerSecurity(edge=ClientSecurity(tmp_path / "phone.key_secret", "edge.key"))
