"""The command `nearsight profile`."""

import csv
import json
from pathlib import Path

import cv2
import pytest

from nearsight.__main__ import main
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.device.prefetching.device_profile import DeviceProfile
from support.pictures import photo_jpeg, picture_jpeg


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("references", "queries"):
        (tmp_path / name).mkdir()
    for number in range(4):
        (tmp_path / f"references/{number}.jpg").write_bytes(picture_jpeg(number))
        (tmp_path / f"queries/{number}_a.jpg").write_bytes(photo_jpeg(number))
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "object_id"), *((f"{n}_a.jpg", str(n)) for n in range(4))])
    return tmp_path


def test_a_quick_profile_is_measured_printed_and_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "profile.json"
    assert main(["profile", str(folder), "--out", str(out), "--quick", "--query-features", "300"]) == 0
    shown = capsys.readouterr().out
    assert "f(k)" in shown
    assert "recall(k)" in shown
    assert str(out) in shown
    profile = CacheProfile.load(out)
    assert (profile.largest_k, profile.query_features) == (4, 300)
    picture = cv2.imread(str(folder / "profile.png"))
    assert picture is not None, "the picture lies beside the profile"
    assert picture.std() > 10


def test_a_picture_that_cannot_be_written_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "profile.json"
    command = ["profile", str(folder), "--out", str(out), "--quick", "--sizes", "2"]
    assert main([*command, "--figure", str(folder / "figure.nonsense")]) != 0
    assert "figure.nonsense" in capsys.readouterr().err


def test_json_is_the_profile_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "profile.json"
    command = ["profile", str(folder), "--out", str(out), "--quick", "--sizes", "2,4", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())


@pytest.mark.parametrize("flags", [(), ("--device", "--features", "200,300")], ids=["edge", "device"])
def test_an_image_that_cannot_be_used_is_named_beside_json_too(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    (folder / "queries/0_a.jpg").write_bytes(b"no image")
    out = folder / "profile.json"
    assert main(["profile", str(folder), "--out", str(out), "--quick", "--json", *flags]) == 0
    shown = capsys.readouterr()
    assert "skipped 0_a.jpg: " in shown.err
    assert json.loads(shown.out) == json.loads(out.read_text())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sizes", "1,many"], "--sizes"),
        (["--sizes", "5"], "between 1 and 4"),
        (["--backend", "no-such"], "no-such"),
    ],
)
def test_wrong_options_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main(["profile", str(folder), "--out", str(folder / "p.json"), *flags]) != 0
    assert message in capsys.readouterr().err
    assert not (folder / "p.json").exists()


def test_a_device_is_measured_with_several_numbers_of_features(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "device.json"
    command = ["profile", str(folder), "--out", str(out), "--quick", "--device", "--features", "300,100"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Table 4.1" in shown
    assert "nearsight device --profile" in shown
    profile = DeviceProfile.load(out)
    assert profile.feature_counts == (100, 300)
    for one in profile.profiles:
        assert [point.k for point in one.measurements] == [1, 2, 4]
        assert one.extraction_ms > 0


@pytest.mark.parametrize("features", ["", "10", "few"])
def test_numbers_of_features_that_cannot_be_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], features: str
) -> None:
    assert main(["profile", str(folder), "--device", "--features", features]) == 2
    assert "--features" in capsys.readouterr().err
