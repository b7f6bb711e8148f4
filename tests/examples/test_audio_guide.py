"""The audio guide with a real cloud, and a camera that shows one exhibit after another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight import RecognizedObject, StreamAnswer, Unavailable
from nearsight.__main__ import main
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.video.live_view import Done
from support.camera import UNKNOWN, recognition
from support.cloud import running_cloud
from support.examples import example
from support.pictures import photo_jpeg, picture_jpeg

OBJECTS = "object_id,label,audio,text\n1,Night,../night.wav,\n2,Dawn,,-The sun rises.\n"


class Camera:
    """Shows each exhibit (a seed) until a condition holds, and for ten more frames."""

    def __init__(self, walk: Sequence[tuple[int, Callable[[], bool]]]) -> None:
        self._frames = self._along(walk)

    def _along(self, walk: Sequence[tuple[int, Callable[[], bool]]]) -> Iterator[NDArray[np.uint8]]:
        for seed, condition in walk:
            frame = cv2.imdecode(np.frombuffer(photo_jpeg(seed), np.uint8), cv2.IMREAD_COLOR)
            while not condition():
                yield np.asarray(frame, np.uint8)
            yield from [np.asarray(frame, np.uint8)] * 10

    def read(self) -> tuple[bool, NDArray[np.uint8] | None]:
        image = next(self._frames, None)
        return image is not None, image

    def isOpened(self) -> bool:  # noqa: N802  OpenCV's name
        return True

    def get(self, _property: int) -> float:
        return 1000.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A catalogue of two exhibits, one with a sound, one with a text."""
    (tmp_path / "museum/references").mkdir(parents=True)
    for seed in (1, 2):
        (tmp_path / f"museum/references/{seed}.jpg").write_bytes(picture_jpeg(seed))
    (tmp_path / "museum/objects.csv").write_text(OBJECTS)
    ingest = ["cloud", "ingest", str(tmp_path / "museum"), "--catalogue", "museum"]
    assert main([*ingest, "--database", str(tmp_path / "cloud.db")]) == 0
    return tmp_path / "cloud.db"


def test_the_guide_plays_the_sound_or_reads_the_text_of_each_exhibit_in_view_once(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sounds").mkdir()
    (tmp_path / "sounds/night.wav").write_bytes(b"RIFF")
    (tmp_path / "programs").mkdir()
    for name in ("aplay", "espeak-ng"):
        program = tmp_path / "programs" / name
        program.write_text(f'#!/bin/sh\necho "{name} $@" >> {tmp_path}/heard\n')
        program.chmod(0o755)

    def heard() -> list[str]:
        log = tmp_path / "heard"
        return log.read_text().splitlines() if log.exists() else []

    printed: list[str] = []
    walk = [(1, lambda: len(heard()) > 0), (2, lambda: len(heard()) > 1), (1, lambda: len(heard()) > 2)]
    guide = example("audio_guide")
    monkeypatch.setattr(guide.cv2, "VideoCapture", lambda _source: Camera(walk))
    monkeypatch.setattr(guide, "print", lambda line, **_: printed.append(line), raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with running_cloud(database, create=False, recognition=RecognitionSettings()) as cloud:
        arguments = ["--edge", cloud.endpoint, "--sounds", str(tmp_path / "sounds"), "0"]
        monkeypatch.setattr("sys.argv", ["audio_guide.py", *arguments])
        guide.main()
    # On a busy machine a request may end with a timeout, which is printed as well.
    spoken = [line for line in printed if "answer" not in line]
    assert spoken == ["Night: night.wav", "Dawn: -The sun rises.", "Night: night.wav"]
    night = f"aplay -- {tmp_path}/sounds/night.wav"
    assert heard() == [night, "espeak-ng -- -The sun rises.", night]


def test_without_programs_for_playback_the_label_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    guide = example("audio_guide").Guide(tmp_path)
    known = replace(recognition("1"), object=RecognizedObject("1", "Ni\x1b[2Jght", 1, 0.9, 30, None))
    for number, found in enumerate((None, known, UNKNOWN, None, known)):
        guide.receive(StreamAnswer(number, 0.0, Done.TRACKED, found))
    guide.stop()
    assert capsys.readouterr().out == "Ni[2Jght\n"


def test_an_error_and_its_end_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guide = example("audio_guide").Guide(tmp_path)
    for number, error in enumerate((Unavailable("no tier"), Unavailable("no tier"), None, None)):
        guide.receive(StreamAnswer(number, 0.0, Done.PAUSED, error=error))
    assert capsys.readouterr().out == "no answer: no tier\nanswers again\n"


@pytest.mark.parametrize("name", ["audio_guide", "live_camera"])
def test_a_missing_clip_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name, "--edge", "tcp://127.0.0.1:9", "missing.avi"])
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(SystemExit, match="neither the number of a camera"):
        example(name).main()
