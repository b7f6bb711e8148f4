"""`nearsight models`: commands and error messages."""

import json
import sys
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.inference.repository import ModelRepository
from support.networks import COLOURS, adder_network, colour_network, endless_network, split_network


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where the default folder, models, is
    colour_network(tmp_path / "colours.onnx")
    (tmp_path / "labels.txt").write_text("\n".join((*COLOURS, "")), encoding="utf-8-sig")  # as Windows does
    return tmp_path


def test_a_network_is_added_listed_replaced_and_removed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add = ["models", "add", "colours.onnx", "--labels", "labels.txt"]
    assert main(add) == 0
    told = capsys.readouterr().out
    assert "added colours, version 1, in models: 3 classes of photos" in told
    assert "in memory; loads in" in told
    stands_in = ["--accuracy", "0.7", "--stands-in-for", "birds"]
    assert main([*add, "--least-confidence", "0.9", "--pixels=-1..1", *stands_in]) == 0
    assert capsys.readouterr().out.startswith("replaced colours, version 2")
    assert main(["models", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["network"], listed["version"], listed["labels"]) == ("colours", "2", "3")
    kept = ModelRepository(place / "models").get("colours")
    assert (kept.labels, kept.pixels, kept.least_confidence) == (COLOURS, "-1..1", 0.9)
    assert (kept.accuracy, kept.stands_in_for) == (0.7, "birds")
    assert main(["models", "remove", "colours"]) == 0
    assert main(["models", "list"]) == 0
    assert "no networks; `nearsight models add` adds one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.onnx"], "there is no file 'none.onnx'"),
        (["text.onnx"], "text cannot be loaded"),
        (["empty.onnx"], "is empty"),
        (["split.onnx"], "the weights of split are in another file; merge the files: python -c 'import onnx"),
        (["colours.onnx", "--labels", "two.txt"], "has 3 classes, but there are 2 labels"),
        (["colours.onnx", "--labels", "empty.onnx"], "there is no label in"),
        (
            ["colours.onnx", "--labels", "none.txt"],
            "cannot read the labels in none.txt: No such file or directory; check",
        ),
        (["colours.onnx", "--stands-in-for", "birds"], "state an accuracy from 0 to 1"),
        (["colours.onnx", "--pixels", "0..7"], "use one of 0..255"),
        (["colours.onnx", "--name", "a/b"], "'a/b' is not a valid name of a network"),
        (["adder.onnx", "--labels", "labels.txt"], "not an image"),
        (
            ["adder.onnx", "--accuracy", "0.7", "--stands-in-for", "adder"],
            "adder cannot stand in for itself",
        ),
        (["endless.onnx"], "measuring endless exceeded the time limit"),
    ],
)
def test_invalid_networks_are_refused_and_not_stored(
    place: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    adder_network(place / "adder.onnx")
    endless_network(place / "endless.onnx", rounds=10**12)
    split_network(place / "split.onnx")
    (place / "text.onnx").write_text("no network")
    (place / "empty.onnx").touch()
    (place / "two.txt").write_text("one\ntwo\n")
    (place / "nearsight.toml").write_text("[cloud.models]\nload_limit_s = 0.3\n" if "endless" in says else "")
    assert main(["models", "add", *arguments]) in (2, 4, 5)
    error = capsys.readouterr().err
    assert says in error.replace("\n", " ")
    assert not (place / "models").exists()


def test_a_file_is_not_a_folder_of_networks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adder_network(place / "adder.onnx")
    for command in (["add", "adder.onnx"], ["list"], ["remove", "adder"]):
        assert main(["models", *command, "--folder", "adder.onnx"]) == 2
        assert capsys.readouterr().err == "error: adder.onnx is a file; name a folder of networks\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--key", "me.key"], "keys are given, but no running daemon"),
        (["--server-key", "x"], "keys are given, but no running daemon"),
        (["ENDPOINT", "--folder", "models"], "a running daemon is given, and also a folder"),
        (["ENDPOINT", "--config", "nearsight.toml"], "a running daemon is given, and also a folder"),
    ],
)
def test_options_without_an_effect_are_refused(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, endpoint in (
        (["add", "colours.onnx"], "--to"),
        (["list"], "--from"),
        (["remove", "a"], "--from"),
    ):
        given = [f"{endpoint}=tcp://127.0.0.1:9" if one == "ENDPOINT" else one for one in options]
        assert main(["models", *command, *given]) == 2
        assert says in capsys.readouterr().err.replace("\n", " ")


def test_a_network_is_profiled(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "profile", "colours.onnx", "--cycles", "2", "--executions", "3"]) == 0
    told = capsys.readouterr().out
    assert "colours.onnx: 2 cycles" in told
    for step in ("load ms", "first execution ms", "later executions ms", "memory after the load", "unload"):
        assert step in told
    assert main(["models", "profile", "none"]) == 2
    assert "there is no network 'none' in models, and no such file" in capsys.readouterr().err


def test_without_the_library_the_error_explains_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["models", "add", "colours.onnx"]) == 5
    assert "pip install 'nearsight[inference]'" in capsys.readouterr().err


def test_an_unreachable_daemon_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "log", "tcp://127.0.0.1:9", "--timeout", "0.2"]) == 4
    assert "error:" in capsys.readouterr().err
