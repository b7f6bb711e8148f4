"""What commands print: whole values, one line per error, JSON that parses, progress apart from results."""

import json

import pytest

from nearsight.common.command_line import terminal
from nearsight.common.command_line.terminal import print_error, print_json, print_table, progress_bar


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


def test_a_table_that_is_too_wide_goes_on_in_further_ones_with_its_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PIPED_WIDTH", 40)
    columns = ("configuration", *(f"number {place}" for place in range(6)))
    print_table(columns, [("load-balanced", *(1000.5 for _ in range(6)))], title="once", keys=1)
    out = capsys.readouterr().out
    assert out.count("load-balanced") == 3
    assert out.count("1000.5") == 6
    assert out.count("once") == 1


def test_headings_are_folded_between_words_where_that_suffices(
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


def test_a_long_text_is_folded_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the edge's cores stay nearly idle, as our classifier is too fast"
    assert terminal.folded(text, indent=9) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    first, *others = terminal.folded(text, indent=9).split("\n")
    assert len(first) <= 40 - 9
    assert all(line.startswith(" " * 9) and len(line) <= 40 for line in others)
    assert " ".join([first, *(line.strip() for line in others)]) == text


def test_a_table_that_fits_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("configuration", "p50 ms"), [("load-balanced", 3)], keys=1)
    assert capsys.readouterr().out.count("load-balanced") == 1


def test_a_table_fits_if_no_value_and_no_word_of_a_heading_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("load-balanced", "12.5")
    needed = len("load-balanced") + len("latency") + 2 * len(" | ") + 1
    for width, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
        assert terminal.fits_terminal(("name", "latency ms"), [row]) is fits
