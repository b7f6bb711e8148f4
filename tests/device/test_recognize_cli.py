"""The command ``nearsight recognize``."""

import json
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import Overloaded
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.device.recognize_cli import photos_in
from support.pictures import broken_images
from support.recognition_server import EXHIBIT, ScriptedRecognition, always, failing, response
from support.recognizers import NOBODY, PHOTO, Scene


@pytest.fixture
def edge(stack: ExitStack) -> ScriptedRecognition:
    service, service.endpoint = Scene(stack).tier("edge", always("edge"))
    return service


@pytest.fixture
def photo(tmp_path: Path) -> str:
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    return str(tmp_path / "photo.jpg")


def test_a_photo_is_described(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 0
    output = capsys.readouterr().out
    headline, *lines = output.splitlines()
    assert headline == f"{photo}: Night [0042], confidence 90 %"
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


def test_unknown_has_its_own_exit_code(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edge.answer = lambda: response("cloud", None)
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 6
    assert "unknown" in capsys.readouterr().out


def test_errors_are_one_line_with_the_next_step(
    edge: ScriptedRecognition,
    photo: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edge.answer = failing(Overloaded("busy", advice="come back later"))
    assert main(["recognize", photo, "--edge", edge.endpoint]) == 4
    assert main(["recognize", "none.jpg", "--edge", edge.endpoint]) == 2
    nobody = dict.fromkeys(DEFAULT_ENDPOINTS, NOBODY)
    monkeypatch.setattr("nearsight.device.recognizer.DEFAULT_ENDPOINTS", nobody)
    assert main(["recognize", photo]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") and "; " in line for line in lines)
    assert "come back later" in lines[0]
    assert "check the path" in lines[1]
    assert "start `nearsight cloud`" in lines[2]


def test_the_photo_is_drawn(edge: ScriptedRecognition, photo: str, tmp_path: Path) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "out.png")]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert main(["recognize", photo, photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "new")]) == 0
    assert len(list((tmp_path / "new").iterdir())) == 2
    assert main(["recognize", photo, photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "o.png")]) == 2
    assert main(["recognize", photo, "--edge", edge.endpoint, "--draw", str(tmp_path / "out.gif")]) == 2
    assert not (tmp_path / "out.gif").exists()


def test_tiers_may_be_configured_in_the_settings_file(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "nearsight.toml"
    config.write_text(f'[device]\ncatalogue = "zoo"\n[device.edge]\nendpoint = "{edge.endpoint}"\n')
    assert main(["recognize", photo, "--config", str(config)]) == 0
    assert edge.contexts[0].catalogue == "zoo"
    assert EXHIBIT.label in capsys.readouterr().out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three photos, one of them in a subfolder, a broken one, and other files."""
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for name in ("a.jpg", "b.JPG", "more/c.jpeg"):
        (photos / name).write_bytes(PHOTO)
    (photos / "d.png").write_bytes(broken_images()["truncated"])
    for name in ("notes.txt", ".hidden.jpg"):
        (photos / name).write_text("not a photo")
    return photos


def test_a_folder_is_a_line_for_each_photo_and_a_summary(
    edge: ScriptedRecognition, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [response("edge"), response("cloud", None), response("cloud")]
    edge.answer = lambda: answers.pop(0)
    assert main(["recognize", str(folder), "--edge", edge.endpoint]) == 2
    shown = capsys.readouterr()
    first, second, third, last = shown.out.splitlines()
    assert first.startswith(f"{folder}/a.jpg: Night [0042], confidence 90 % (edge, ")
    assert second.startswith(f"{folder}/b.JPG: unknown (cloud, ")
    assert third.startswith(f"{folder}/more/c.jpeg: ")
    assert last.startswith("4 photos: 2 known, 1 unknown, 1 failed; p50 ")
    assert last.endswith(" ms; cloud answered 2, edge answered 1")
    assert shown.err.startswith(f"error: {folder}/d.png: ")


def test_photos_and_folders_mix_and_json_has_an_entry_for_each(
    edge: ScriptedRecognition, photo: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "d.png").unlink()
    assert main(["recognize", photo, str(folder), "--json", "--edge", edge.endpoint]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["photo"] for entry in entries] == [
        photo,
        *(f"{folder}/{name}" for name in ("a.jpg", "b.JPG", "more/c.jpeg")),
    ]


def test_a_folder_without_photos_is_an_error(
    edge: ScriptedRecognition, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["recognize", str(tmp_path / "empty"), "--edge", edge.endpoint]) == 2
    assert "there are no photos in" in capsys.readouterr().err


def test_labels_do_not_steer_the_terminal(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = replace(EXHIBIT, label="Night\x1b[2J\r\x9b31m", metadata={"by\x07": "R.\n\x1b]0;title\x07"})
    edge.answer = lambda: response("edge", bad)
    for arguments in ([photo], [photo, photo], [photo, "--json"]):
        assert main(["recognize", *arguments, "--edge", edge.endpoint]) == 0
    shown = capsys.readouterr()
    assert not set("\x1b\r\x9b\x07") & set(shown.out + shown.err)
    assert "Night\\x1b[2J" in shown.out


WHY = "no lookup here is as fast as the cloud"


@pytest.mark.parametrize(("answered_by", "says"), [("cloud", 1), ("edge", 0)])
def test_after_an_answer_of_the_cloud_the_edge_explains_its_empty_cache(
    answered_by: str, says: int, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    services = [
        ScriptedRecognition(always(answered_by)),
        HealthService("edge", lambda: True, lambda: (("museum: why empty", WHY),)),
    ]
    with RpcServer(services, tier="edge", settings=ServerSettings()) as edge:
        assert main(["recognize", photo, "--edge", edge.endpoint]) == 0
    assert capsys.readouterr().out.count(f"why not the edge: {WHY}") == says


def test_an_empty_name_of_a_catalogue_is_refused(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint, "--catalogue", ""]) == 5
    assert "catalogue: string should have at least 1 character" in capsys.readouterr().err


def test_a_key_without_the_key_of_a_tier_is_refused(
    edge: ScriptedRecognition, photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recognize", photo, "--edge", edge.endpoint, "--key", "phone.key_secret"]) == 5
    assert "nothing would be encrypted; give a tier with its key" in capsys.readouterr().err
    assert not edge.contexts


def test_drawings_of_several_photos_need_a_folder_before_the_first_is_recognised(
    edge: ScriptedRecognition, photo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "drawn"
    place.touch()
    assert main(["recognize", photo, photo, "--edge", edge.endpoint, "--draw", str(place)]) == 2
    assert f"--draw {place} is a file; give a folder" in capsys.readouterr().err
    assert not edge.contexts


@pytest.mark.parametrize("draw", ["photo.png", "link.png", "./sub/../photo.png"])
def test_a_drawing_never_replaces_its_photo(
    edge: ScriptedRecognition,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    draw: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photo.png").write_bytes(PHOTO)
    Path("link.png").symlink_to("photo.png")
    Path("sub").mkdir()
    assert main(["recognize", "photo.png", "--edge", edge.endpoint, "--draw", draw]) == 2
    assert "--draw would replace the photo" in capsys.readouterr().err
    assert Path("photo.png").read_bytes() == PHOTO
    assert not edge.contexts


@pytest.mark.parametrize("given", ["photos", "photos/one.jpg"])
def test_a_name_without_a_suffix_is_a_folder_of_drawings(
    edge: ScriptedRecognition, tmp_path: Path, given: str
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(PHOTO)
    place = tmp_path / "drawn"
    assert main(["recognize", str(tmp_path / given), "--edge", edge.endpoint, "--draw", f"{place}/"]) == 0
    assert [one.name for one in place.iterdir()] == ["001_one.png"]


def test_folders_that_vanish_while_they_are_searched_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("gone", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "photo.jpg").write_bytes(PHOTO)
    scandir = os.scandir

    def listed(path: str) -> Any:
        if Path(path).name == "gone":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    assert photos_in([tmp_path]) == [tmp_path / "kept" / "photo.jpg"]
