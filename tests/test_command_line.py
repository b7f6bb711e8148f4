"""The `nearsight` command: overview, errors, exit codes. Commands are tested with their packages."""

import errno
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from nearsight import __main__ as command_line
from nearsight import __version__
from nearsight.__main__ import LazyCommand, LazyGroup, load_command
from nearsight.common.config.base import DaemonSettings
from nearsight.common.errors import EXIT_CODES, MissingDependency, Overloaded
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from support.disks import full_disk

HEAVY = ("cv2", "faiss", "sklearn", "scipy", "matplotlib", "zmq", "google.protobuf", "pydantic")


def use(monkeypatch: pytest.MonkeyPatch, raises: BaseException) -> None:
    """Give the command line one command, `fail`, that raises."""

    def fail() -> None:
        raise raises

    application = typer.Typer()
    application.command("fail")(fail)
    monkeypatch.setattr(
        LazyGroup, "resolve_command", lambda *_: ("fail", typer.main.get_command(application), [])
    )


def test_the_overview_lists_every_command_and_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command_line.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, command in command_line.COMMANDS.items():
        assert f" {name} " in shown
        assert command.help in shown
    text = " ".join(shown.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in text


def test_the_overview_imports_nothing_heavy() -> None:
    code = (
        "import sys; from nearsight.__main__ import main; main(['--help']); "
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stderr.strip() == "[]"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--version"]) == 0
    assert capsys.readouterr().out == f"nearsight {__version__}\n"


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["clodu"]) == 2
    assert "Did you mean 'cloud'?" in capsys.readouterr().err


def every_command() -> list[tuple[str, ...]]:
    """Commands and those within them, as their names are typed."""

    def within(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, inner in getattr(command, "commands", {}).items():
            yield from within(inner, (*path, name))

    commands = command_line.COMMANDS.items()
    return [path for name, lazy in commands for path in within(load_command(name, lazy), (name,))]


def test_every_command_has_a_help_page_that_fits_80_columns_and_shows_flags_without_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path in ((), *every_command()):
        assert command_line.main([*path, "--help"]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert any(f"Usage: {' '.join(('nearsight', *path))}" in line for line in shown)
        assert not path or not any("--install-completion" in line for line in shown)
        assert max(map(len, shown)) <= 80, path
        typers_own = ("--help", "-completion")
        with_value = [line for line in shown if "<bool>" in line]
        assert not [line for line in with_value if not any(one in line for one in typers_own)], path
        # A line that ends long before the margin ends a paragraph, or was broken in the source.
        text = [line.rstrip() for line in shown if line.startswith(" ") and len(line.rstrip()) > 1]
        assert not [a for a, b in pairwise(text) if len(a) < 50 and b[1:2].islower()], path


@pytest.mark.parametrize("section", command_line.SETTINGS_CLASSES)
def test_every_daemon_has_settings_with_defaults_and_descriptions(section: str) -> None:
    module, attribute = command_line.SETTINGS_CLASSES[section].split(":")
    settings_class = getattr(importlib.import_module(module), attribute)
    assert isinstance(settings_class(), DaemonSettings)


@pytest.mark.parametrize(
    ("command", "daemon"), [("status", "cloud"), ("explain", "edge"), ("peers", "device")]
)
def test_the_example_of_an_address_is_one_of_a_daemon_that_the_command_asks(
    capsys: pytest.CaptureFixture[str], command: str, daemon: str
) -> None:
    assert command_line.main([command, "--help"]) == 0
    assert f"For example {DEFAULT_ENDPOINTS[daemon]}." in capsys.readouterr().out
    assert command_line.main([command, "no-address"]) != 0
    assert "127.0.0.1" not in capsys.readouterr().err


def test_an_error_is_one_line_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Overloaded("the edge is busy", advice="try again"))
    assert command_line.main(["fail"]) == 4
    assert capsys.readouterr().err == "error: the edge is busy; try again\n"


def test_debug_shows_the_traceback_of_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Overloaded("the edge is busy"))
    assert command_line.main(["--debug", "fail"]) == 4
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("NEARSIGHT_DEBUG", "1")
    assert command_line.main(["fail"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_one_line_that_names_the_file_with_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    use(monkeypatch, KeyError("x"))
    assert command_line.main(["fail"]) == 1
    line = capsys.readouterr().err
    (log,) = tmp_path.iterdir()
    assert line.startswith("error: unexpected KeyError: 'x'")
    assert str(log) in line
    assert line.count("\n") == 1
    assert "Traceback" in log.read_text()


def test_an_error_of_the_operating_system_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, raises=OSError(errno.ENOSPC, "No space left on device", "rows.csv"))
    assert command_line.main(["fail"]) == 5
    assert capsys.readouterr().err.startswith("error: No space left on device: rows.csv; free some space")


def test_ctrl_c_ends_a_command_without_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, KeyboardInterrupt())
    assert command_line.main(["fail"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", ["config show gateway", "--help", "--version", "cloud --help"])
def test_a_closed_pipe_ends_a_command_without_a_message(tmp_path: Path, arguments: str) -> None:
    script = f"{sys.executable} -m nearsight {arguments}; echo $? > {tmp_path}/code"
    with subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, stderr = process.communicate(timeout=60)
    assert stderr == ""
    assert (tmp_path / "code").read_text() == "141\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "keys allow nofile.key",
        "keys list --dir nofolder",
        "keys forbid nobody",
        "gateway tokens revoke nobody",
        "recognize photo.jpg --edge nowhere",
        "recognize photo.jpg --set nothing",
        "recognize photo.jpg --config nofile.toml",
        "edge --set cache.k_max=-1",
    ],
)
def test_settings_addresses_keys_and_tokens_have_one_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.main(arguments.split()) == 5


def test_the_advice_for_an_invalid_setting_describes_it_and_works_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nearsight.toml").write_text("[edge.server]\nworkers = 0\n")
    monkeypatch.setenv("NEARSIGHT_EDGE__SERVER__QUEUE_LIMIT", "0")
    assert command_line.main(["config", "show", "edge"]) == 5
    advised = re.search(r"`nearsight (.*?)`", capsys.readouterr().err)
    assert advised is not None
    assert command_line.main(advised[1].split()) == 0
    assert "# Threads that run handlers.\n# workers = 2\n" in Path("described.toml").read_text()


@pytest.mark.parametrize("command", ["cloud", "edge", "gateway", "device"])
def test_the_example_of_set_is_a_setting_of_the_daemon(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command_line.main([command, "--help"]) == 0
    example = re.search(r"One setting, e\.g\. (\S+);", capsys.readouterr().out)
    assert example is not None
    assert command_line.main(["config", "show", command, "--set", example[1]]) == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["cloud", "ingest", "", "--catalogue", "museum"], "FOLDER"),
        (["recognize", "photo.jpg", ""], "PHOTO"),
        (["edge", "--state", ""], "--state"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    capsys: pytest.CaptureFixture[str], arguments: list[str], name: str
) -> None:
    assert command_line.main(arguments) == 2
    assert capsys.readouterr().err == f"error: the path {name} is empty; name a file or a folder\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "keys generate me --dir file",
        "gateway tokens add me --tokens file/me.json",
        "config init file/me.toml",
    ],
)
def test_a_place_that_cannot_be_written_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert command_line.main(arguments.split()) == 5
    assert re.fullmatch(r"error: .*file/me\.\w+.*; [a-z ;]+\n", capsys.readouterr().err)


def test_a_full_disk_leaves_no_part_of_a_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with full_disk():
        assert command_line.main(["config", "init"]) == 5
    assert not [*tmp_path.iterdir()]
    assert command_line.main(["config", "init"]) == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_succeeds_with_closed_streams(closed: str) -> None:
    script = f"{sys.executable} -m nearsight config show gateway {closed}"
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=False, timeout=60).returncode == 0


def test_text_that_an_output_cannot_encode_is_shown_as_escapes() -> None:
    environment = os.environ | {"NEARSIGHT_GATEWAY__TOKENS": "Zürich.json", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "nearsight", "config", "show", "gateway"]

    def shown(*options: str) -> str:
        whole = [*command, *options]
        return subprocess.run(whole, capture_output=True, text=True, check=True, env=environment).stdout

    assert "Z\\xfcrich.json" in shown()
    assert "Zürich.json" in json.dumps(json.loads(shown("--json")), ensure_ascii=False)


def test_a_missing_library_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        MissingDependency, match=r"needs the library 'no_such_library'.*pip install 'nearsight\[x\]'"
    ):
        load_command("more", LazyCommand("needs_more:app", "", extra="x"))
