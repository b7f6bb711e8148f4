"""``nearsight device`` as a person types it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.__main__ import main
from support.daemon_process import daemon_process
from support.pictures import jpeg, picture
from support.recognition_server import ScriptedRecognition, always, serve


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


def test_the_daemon_announces_itself_serves_and_ends_on_sigterm(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon_process(tmp_path, "device", "--edge", edge.endpoint) as daemon:
        assert main(["recognize", photo, "--edge", daemon.endpoint]) == 0
        assert "edge answered" in capsys.readouterr().out
        assert daemon.stop() == 0, daemon.log
    assert "Traceback" not in daemon.log
