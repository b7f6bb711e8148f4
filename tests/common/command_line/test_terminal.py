"""Output of commands: complete values, one line per error, valid JSON, progress on standard error."""

import dataclasses
import json
import unicodedata
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import TrainedObject
from nearsight.common.command_line import terminal
from nearsight.common.command_line.terminal import (
    print_error,
    print_json,
    print_line,
    print_table,
    progress_bar,
)
from support.objects import random_model


def test_a_table_shows_values_complete_and_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 150
    print_table(
        ("name", "value"), [("[red]markup[/red]", long), ("number", 7)], title="[edge]", right=("value",)
    )
    out = capsys.readouterr().out
    assert "[edge]" in out
    assert "[red]markup[/red]" in out
    assert long in out


def test_json_parses_and_keeps_letters_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": "Mädchen", "k": [1]})
    out = capsys.readouterr().out
    assert json.loads(out) == {"label": "Mädchen", "k": [1]}
    assert "Mädchen" in out


def test_an_error_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("first\n  second [bold]")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: first second [bold]\n")


def test_progress_is_shown_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading [photos]", total=3) as advance:
        advance(1)
        advance(2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "reading [photos]" in captured.err
    assert "3/3" in captured.err


def test_a_table_that_is_too_wide_is_split_and_repeats_its_key_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PIPED_WIDTH", 40)
    columns = ("configuration", *(f"number {place}" for place in range(6)))
    print_table(columns, [("load-balanced", *(1000.5 for _ in range(6)))], title="once", keys=1)
    out = capsys.readouterr().out
    assert out.count("load-balanced") == 3
    assert out.count("1000.5") == 6
    assert out.count("once") == 1


def test_headings_are_wrapped_between_words_if_that_suffices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ("configuration", "precision", "CPU of the edge", "CPU of the cloud")
    rows = [("load-balanced", "100.0", "3.1", "12.5")]
    monkeypatch.setattr(terminal, "PIPED_WIDTH", 46)
    assert terminal.fits_terminal(columns, rows)
    print_table(columns, rows, whole=("configuration",))
    out = capsys.readouterr().out
    assert "precision" in out
    assert "load-balanced" in out
    assert max(map(len, out.splitlines())) <= 46


def test_a_long_line_is_wrapped_only_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the edge's cores stay nearly idle, as our classifier is too fast"
    print_line(text, hang=9)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_line(text, hang=9)
    first, *others = capsys.readouterr().out.splitlines()
    assert len(first) <= 40
    assert others
    assert all(line.startswith(" " * 9) and len(line) <= 40 for line in others)
    assert " ".join([first, *(line.strip() for line in others)]) == text


def test_a_table_that_fits_is_not_split(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("configuration", "p50 ms"), [("load-balanced", 3)], keys=1)
    assert capsys.readouterr().out.count("load-balanced") == 1


def test_a_table_fits_if_no_value_and_no_word_of_a_heading_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("load-balanced", "12.5")
    needed = len("load-balanced") + len("latency") + 2 * len(" | ") + 1
    for width, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
        assert terminal.fits_terminal(("name", "latency ms"), [row]) is fits


HOSTILE = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\x7f\u202egpj\u2066\nforged\r\t:warning: [red]y[/red]\udc80"
SHOWN = r"\x1b]0;owned\x07\x1b[2Jx\x9b31m\x7f\u202egpj\u2066\nforged\r\t:warning: [red]y[/red]\udc80"
CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that control a terminal."""


def control_characters(text: str) -> set[str]:
    """Control characters in a text, except line breaks."""
    return {one for one in text if one != "\n" and unicodedata.category(one) in CONTROL}


def test_control_characters_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE)
    print_line(HOSTILE, err=True)
    print_table(("label",), [(HOSTILE,)], title=HOSTILE)
    print_error(HOSTILE)
    with progress_bar(HOSTILE, total=1) as advance:
        advance(1)
    captured = capsys.readouterr()
    assert control_characters(captured.out) == control_characters(captured.err) == set()
    assert captured.out.splitlines()[0] == captured.err.splitlines()[0] == SHOWN
    assert captured.out.count(SHOWN) == 3
    assert "error: " in captured.err


def test_a_cell_has_one_line_per_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("details",), [(("a: 1", "b: 2\nc: 3"),)])
    out = capsys.readouterr().out
    assert r"b: 2\nc: 3" in out
    assert "a: 1\\n" not in out


def test_json_escapes_control_characters_and_keeps_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": HOSTILE})
    out = capsys.readouterr().out
    assert control_characters(out) == set()
    assert json.loads(out) == {"label": HOSTILE}


def test_control_characters_of_a_label_are_shown_escaped_by_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "cloud.db"
    with CatalogueStore(database) as store:
        model = dataclasses.replace(random_model("a", 1), label=HOSTILE.replace("\udc80", ""))
        store.put("museum", [TrainedObject(model, "hash", "t")])
    assert main(["cloud", "objects", "list", "--database", str(database)]) == 0
    out = capsys.readouterr().out
    assert r"\x1b[2Jx" in out
    assert control_characters(out) == set()
