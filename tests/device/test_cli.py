"""The command ``nearsight device``."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight.__main__ import main
from support.daemon_process import daemon_process
from support.recognition_server import always
from support.recognizers import PHOTO, Scene


def test_the_daemon_serves_and_ends_on_sigterm(
    stack: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, edge = Scene(stack).tier("edge", always("edge"))
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(PHOTO)
    with daemon_process(tmp_path, "device", "--edge", edge) as daemon:
        assert main(["recognize", str(photo), "--edge", daemon.endpoint]) == 0
        assert "edge answered" in capsys.readouterr().out
        assert daemon.stop() == 0, daemon.log
    assert "Traceback" not in daemon.log
