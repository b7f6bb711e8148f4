"""What commands print: whole values, one line per error, JSON that parses, progress apart from results."""

import json

import pytest

from nearsight.common.terminal import print_error, print_json, print_table, progress_bar


def test_a_table_shows_values_whole_and_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_progress_is_shown_apart_from_results(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading [photos]", total=3) as advance:
        advance(1)
        advance(2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "reading [photos]" in captured.err
    assert "3/3" in captured.err
