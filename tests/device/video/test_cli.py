"""The command ``nearsight video``."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight.__main__ import main
from nearsight.device.video.heat_map import HeatVideo
from support.disks import small_disk
from support.videos import convolutional_network, frames_with_a_moving_patch, write_video


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutional_network(tmp_path_factory.mktemp("network") / "small.onnx")


def test_a_video_gives_a_table_two_pictures_and_a_summary(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_video(tmp_path / "clip.avi", 24)
    table, heat_map, heat_video = (tmp_path / name for name in ("out.csv", "heat.png", "heat.avi"))
    outputs = [
        "--threshold",
        "60",
        "--margin",
        "0.08",
        "--csv",
        str(table),
        "--heat-map",
        str(heat_map),
        "--heat-video",
        str(heat_video),
    ]
    assert main(["video", str(clip), "--model", str(network), *outputs]) == 0
    said = capsys.readouterr().out
    assert "24 frames took" in said
    assert "first frame (1)" in said
    assert "The best class was the same as in a whole execution for 10 of 10 frames." in said
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 24
    assert (rows[0]["whole"], rows[0]["recomputed"]) == ("first frame", "1.0")
    assert (rows[1]["whole"], rows[1]["recomputed"], rows[1]["matched"]) == ("", "0.0", "1.0")
    assert {row["class"] for row in rows} <= {"0", "1", "2"}
    picture = cv2.imread(str(heat_map))
    assert picture is not None
    assert picture.shape[1] == 480
    capture = cv2.VideoCapture(str(heat_video))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 24
    capture.release()


def test_json_contains_the_measurements(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip, more = write_video(tmp_path / "clip.avi", 24), ["--last-frame", "--threshold", "60", "--json"]
    more += ["--tolerance", "0"]
    assert main(["video", str(clip), "--model", str(network), "--frames", "12", *more]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"] == 12
    assert report["whole"]["first frame"] == 1
    assert report["p95_ms"] >= report["ms_per_frame"] > 0
    assert report["whole_ms"] > 0
    assert report["same_class"] == report["sample"] == 10
    assert report["map_tolerance"] == 0


def test_a_budget_of_no_time_is_refused(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_video(tmp_path / "clip.avi", 3)
    assert main(["video", str(clip), "--model", str(network), "--budget", "0"]) != 0
    assert "invalid settings of a video session: budget_ms = 0.0" in capsys.readouterr().err


def test_a_video_that_ends_early_is_reported_behind_its_results(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_video(tmp_path / "clip.avi", 40)
    data = clip.read_bytes()
    clip.write_bytes(data[: len(data) // 2])
    assert main(["video", str(clip), "--model", str(network)]) == 0
    said = capsys.readouterr()
    assert "frames took" in said.out
    assert "of 40 frames: it may be damaged" in said.err


def test_black_and_repeated_frames_and_one_that_is_damaged_are_frames_of_a_video(
    network: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    clip, table = tmp_path / "clip.avi", tmp_path / "out.csv"
    writer = cv2.VideoWriter(str(clip), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (64, 64))
    frames = list(frames_with_a_moving_patch(8))
    black = np.zeros_like(frames[0])
    for frame in (*frames, black, black, frames[0], frames[0], frames[3]):
        writer.write(frame)
    writer.release()
    data = bytearray(clip.read_bytes())
    second = data.index(b"\xff\xd8", data.index(b"\xff\xd9"))  # a JPEG begins where another one ended
    data[second + 700 : second + 720] = bytes(20)
    clip.write_bytes(data)
    assert main(["video", str(clip), "--model", str(network), "--csv", str(table)]) == 0
    said = capfd.readouterr()
    assert "13 frames took" in said.out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["frame"]) for row in rows] == list(range(13))
    assert [row["recomputed"] for row in rows[9:12:2]] == ["0.0", "0.0"], "they are as the frame before"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{bad}", "--model", "{network}"], "is not a video that OpenCV can read"),
        (["nothing.mp4", "--model", "{network}"], "there is no file 'nothing.mp4'"),
        (["{clip}", "--model", "nothing.onnx"], "there is no file 'nothing.onnx'"),
        (["{clip}", "--model", "{network}", "--pixels", "7"], "--pixels 7 is unknown"),
        (["{clip}", "--model", "{network}", "--csv", "/nowhere/out.csv"], "there is no folder '/nowhere'"),
        (["{clip}", "--model", "{network}", "--heat-map", "out.xyz"], "end the name in .png"),
        (
            ["{clip}", "--model", "{network}", "--heat-video", "out.gif"],
            "use a name that ends in .mp4 or .avi",
        ),
    ],
    ids=["damaged", "no video", "no network", "unknown range", "no folder", "no picture", "no codec"],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, network: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.mp4"
    bad.write_bytes(b"no video")
    clip = write_video(tmp_path / "clip.avi", 2)
    filled = [one.format(bad=bad, clip=clip, network=network) for one in arguments]
    assert main(["video", *filled]) == 2
    said = capfd.readouterr().err
    # The library of the codecs is only silent in a process of its own, where nobody has used it before.
    errors = [line for line in said.splitlines() if line and not line.startswith("[mov")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]


def test_with_a_variable_frame_rate_times_are_those_of_the_frames(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    animation = cv2.Animation()
    animation.frames = [*frames_with_a_moving_patch(5)]
    animation.durations = [100, 100, 500, 100, 1000]
    clip, table = tmp_path / "clip.gif", tmp_path / "out.csv"
    assert cv2.imwriteanimation(str(clip), animation)
    assert main(["video", str(clip), "--model", str(network), "--csv", str(table)]) == 0
    rows = csv.DictReader(table.read_text().splitlines())
    assert [float(row["time_s"]) for row in rows] == [0.0, 0.1, 0.2, 0.7, 0.8]


@pytest.mark.parametrize("option", ["--csv", "--heat-map", "--heat-video"])
def test_a_folder_or_the_input_is_refused_as_output_before_writing(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    clip, folder = write_video(tmp_path / "clip.avi", 2), tmp_path / "folder.avi"
    folder.mkdir()
    before = clip.read_bytes()
    for place in (folder, clip):
        assert main(["video", str(clip), "--model", str(network), option, str(place)]) == 2
        assert f"give {option} another file" in capsys.readouterr().err
    assert clip.read_bytes() == before


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        (["--csv", "small.onnx"], "small.onnx is the network"),
        (["--csv", "same.png", "--heat-map", "./same.png"], "same.png is also the file of --csv"),
    ],
)
def test_an_output_never_replaces_the_network_or_another_output(
    network: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    outputs: list[str],
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(network, tmp_path)
    clip = write_video(tmp_path / "clip.avi", 2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["video", str(clip), "--model", "small.onnx", *outputs]) == 2
    assert kind in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.system
@pytest.mark.needs("mounts")
@pytest.mark.parametrize("suffix", [".avi", ".mp4"])
def test_on_a_full_disk_the_table_and_the_summary_are_whole_and_the_video_is_one_error(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    clip, place = write_video(tmp_path / "clip.avi", 120, 256), tmp_path / "disk"
    place.mkdir()
    with small_disk(place):
        (place / "filled").write_bytes(bytes(900_000))
        outputs = ["--csv", str(tmp_path / "out.csv"), "--heat-video", str(place / f"heat{suffix}")]
        assert main(["video", str(clip), "--model", str(network), *outputs]) == 5
        assert [path.name for path in place.iterdir()] == ["filled"]
    said = capsys.readouterr()
    assert "120 frames took" in said.out
    assert [line for line in said.err.splitlines() if line.startswith("error: ")] == [
        f"error: {place / f'heat{suffix}'} could not be written completely; the disk may be full; "
        "free some space, or write to another location, and run the command again"
    ]
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 121


@pytest.mark.system
@pytest.mark.needs("mounts")
def test_a_table_beside_a_video_that_fills_the_disk_keeps_its_frames(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip, place = write_video(tmp_path / "clip.avi", 120, 256), tmp_path / "disk"
    place.mkdir()
    with small_disk(place):
        (place / "filled").write_bytes(bytes(900_000))
        table = place / "out.csv"
        outputs = ["--csv", str(table), "--heat-video", str(place / "heat.avi")]
        assert main(["video", str(clip), "--model", str(network), *outputs]) == 5
        rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) > 20
    assert [int(row["frame"]) for row in rows] == list(range(len(rows)))
    assert all(row["ms"] for row in rows), "the last line is whole, too"
    assert "free some space" in capsys.readouterr().err


def test_a_full_disk_of_the_table_is_an_error_that_names_it(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_video(tmp_path / "clip.avi", 2)
    assert main(["video", str(clip), "--model", str(network), "--csv", "/dev/full"]) == 5
    assert "error: No space left on device: /dev/full; free some space" in capsys.readouterr().err


def test_an_error_of_the_heat_video_names_the_video_and_not_the_table(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, table, video = write_video(tmp_path / "clip.avi", 2), tmp_path / "out.csv", tmp_path / "heat.avi"

    def fail(_: HeatVideo) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(video))

    monkeypatch.setattr(HeatVideo, "close", fail)
    outputs = ["--csv", str(table), "--heat-video", str(video)]
    assert main(["video", str(clip), "--model", str(network), *outputs]) != 0
    said = capsys.readouterr().err
    assert str(video) in said
    assert str(table) not in said
