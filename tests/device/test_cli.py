"""``nearsight recognize`` and ``nearsight device`` as a person types them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import Overloaded
from support.daemon_process import daemon_process
from support.pictures import broken_images, jpeg, picture
from support.recognition_server import EXHIBIT, ScriptedRecognition, always, failing, response, serve


@pytest.fixture
def edge() -> Iterator[ScriptedRecognition]:
    service = ScriptedRecognition(always("edge"))
    server = serve(service, "edge")
    service.endpoint = server.endpoint
    yield service
    server.stop(0.0)


@pytest.fixture
def photo(tmp_path: Path) -> str:
    (tmp_path / "photo.jpg").write_bytes(jpeg(picture(1)))
    return str(tmp_path / "photo.jpg")


def test_a_photo_is_described(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 0
    output = capsys.readouterr().out
    headline, *lines = output.splitlines()
    assert headline == f"{photo}: Night [0042], confidence 90%"
    assert "  artist: R." in lines
    assert any(line.startswith("  edge answered in") and "network device-edge" in line for line in lines)


def test_several_photos_as_json(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.jpg").write_bytes(broken_images()["truncated"])
    code = main(["recognize", photo, str(tmp_path / "broken.jpg"), "--json", "--edge", edge.endpoint])
    found, broken = json.loads(capsys.readouterr().out)
    assert code == 2
    assert (found["object_id"], found["answered_by"], found["known"]) == ("0042", "edge", True)
    assert broken["code"] == "INVALID_ARGUMENT"
    assert broken["advice"]


def test_unknown_has_an_exit_code_of_its_own(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edge.answer = lambda: response("cloud", None)
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 6
    assert "unknown" in capsys.readouterr().out


def test_errors_are_one_line_with_the_next_step(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edge.answer = failing(Overloaded("busy", advice="come back later"))
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 4
    assert main(["recognize", "none.jpg", "--edge", edge.endpoint]) == 2
    assert main(["recognize", photo]) == 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") and "; " in line for line in lines)
    assert "come back later" in lines[0]
    assert "check the path" in lines[1]
    assert "tcp://" in lines[2]


def test_the_photo_is_drawn(edge: ScriptedRecognition, photo: str, tmp_path: Path) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "out.png")]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert main(["recognize", photo, photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "new")]) == 0
    assert len(list((tmp_path / "new").iterdir())) == 2
    assert main(["recognize", photo, photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "o.png")]) == 2


def test_the_tiers_may_come_from_the_settings_file(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "nearsight.toml"
    config.write_text(f'[device]\ncatalogue = "zoo"\n[device.edge]\nendpoint = "{edge.endpoint}"\n')
    assert main(["recognize", photo, "--config", str(config)]) == 0
    assert edge.contexts[0].catalogue == "zoo"
    assert EXHIBIT.label in capsys.readouterr().out


def test_the_daemon_announces_itself_serves_and_ends_on_sigterm(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon_process(tmp_path, "device", "--edge", edge.endpoint) as daemon:
        assert main(["recognize", photo, "--edge", daemon.endpoint]) == 0
        assert "edge answered" in capsys.readouterr().out
        assert daemon.stop() == 0, daemon.log
    assert "Traceback" not in daemon.log
