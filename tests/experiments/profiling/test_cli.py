"""The command `nearsight profile`."""

import json
from pathlib import Path

import cv2
import pytest

from nearsight.__main__ import main
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.device.prefetching.device_profile import DeviceProfile
from support.gallery import numbered, write_data_set


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_data_set(tmp_path, numbered(range(4)))


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture is not drawn, which takes longer than a quick measurement."""
    monkeypatch.setattr("nearsight.experiments.profiling.picture.draw_profiles", lambda *_, **__: None)


def test_a_quick_profile_is_measured_printed_and_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "the profile.json"
    assert main(["profile", str(folder), "--out", str(out), "--quick", "--query-features", "300"]) == 0
    shown = capsys.readouterr().out
    assert "f(k)" in shown
    assert "recall(k)" in shown
    assert f"nearsight edge --profile '{out}'" in shown
    profile = CacheProfile.load(out)
    assert (profile.largest_k, profile.query_features) == (4, 300)
    picture = cv2.imread(str(folder / "the profile.png"))
    assert picture is not None, "the picture is in the folder of the profile"
    assert picture.std() > 10


@pytest.mark.parametrize("option", ["--out", "--figure"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (folder / "file").touch()
    files = {"--out": "profile.json", "--figure": "figure.png"} | {option: "file/here"}
    options = [part for name, file in files.items() for part in (name, str(folder / file))]
    assert main(["profile", str(folder), "--quick", *options]) == 5
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/file/here" in said
    assert not (folder / "profile.json").exists()


def test_values_that_no_photo_shows_are_neither_printed_nor_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "labels.csv").write_text("query,object_id\nphoto0.jpg,0\n")
    for name in "123":
        (folder / "queries" / f"photo{name}.jpg").unlink()
    out = folder / "profile.json"
    assert main(["profile", str(folder), "--out", str(out), "--quick", "--sizes", "1,4", "--seed", "3"]) == 0
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    (first,) = (line for line in lines if line[:1] == ["1"])
    assert first[-2:] == ["-", "-"]
    assert CacheProfile.load(out).measurements[0].recall is None


@pytest.mark.usefixtures("no_picture")
def test_the_json_is_the_profile_and_unreadable_images_are_named_on_standard_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "queries/photo0.jpg").write_bytes(b"no image")
    out = folder / "profile.json"
    assert main(["profile", str(folder), "--out", str(out), "--quick", "--sizes", "2,4", "--json"]) == 0
    shown = capsys.readouterr()
    assert "skipped photo0.jpg: " in shown.err
    assert json.loads(shown.out) == json.loads(out.read_text())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sizes", "1,many"], "--sizes"),
        (["--sizes", "5"], "between 1 and 4"),
        (["--seed", "-1"], "--seed"),
        (["--figure", "figure.nonsense"], "figure.nonsense"),
        (["--figure", "p.json"], "p.json"),
        (["--out", "p.png", "--figure", "p"], "p.png would be the profile and its picture"),
    ],
)
def test_invalid_options_are_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["profile", str(folder), "--out", str(folder / "p.json"), *flags]) != 0
    assert message in capsys.readouterr().err
    assert not (folder / "p.json").exists()


def test_a_device_is_measured_with_several_numbers_of_features(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "queries/photo0.jpg").write_bytes(b"no image")
    out = folder / "device.json"
    command = ["profile", str(folder), "--out", str(out), "--quick", "--device", "--features", "300,100"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert shown.err.count("skipped photo0.jpg: ") == 1
    assert "Table 4.1" in shown.out
    assert "nearsight device --profile" in shown.out
    profile = DeviceProfile.load(out)
    assert profile.feature_counts == (100, 300)
    for one in profile.profiles:
        assert [point.k for point in one.measurements] == [1, 2], "no photo shows an object that 4 lack"
        assert one.largest_k == 4
        assert one.extraction_ms > 0


def test_an_unknown_backend_is_refused_before_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(folder / "p.json")
    assert main(["profile", str(folder), "--out", out, "--backend", "no-such"]) == 5
    (said,) = capsys.readouterr().err.splitlines()
    assert "no classifier backend 'no-such'" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--features", "200"], "--features needs --device"),
        (["--device", "--query-features", "300"], "--query-features has no effect with --device"),
    ],
)
def test_an_option_without_effect_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["profile", str(folder), "--out", str(folder / "p.json"), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("features", ["", "10", "few"])
def test_invalid_numbers_of_features_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], features: str
) -> None:
    assert main(["profile", str(folder), "--device", "--features", features]) == 2
    assert "--features" in capsys.readouterr().err
