"""Output of commands for people: lines, tables, progress and errors; and JSON for scripts.

The output may hold text from others, such as labels. Control characters in it are escaped, see `printable`.

Results go to standard output, everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from nearsight.common.text import printable, printable_json

PIPED_WIDTH = 240
"""Width of a table without a terminal [columns]: wide enough for one line per row, so that it can be searched
by line."""
_BORDER = 3
"""Characters between two columns of a table, spaces included."""


class _OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        # The entry point maps this to an exit code; rich would exit at once with the code of a failure.
        raise BrokenPipeError


def output_console() -> Console:
    """Standard output, with the width of the terminal."""
    return _OutputConsole(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    keys: int = 0,
) -> None:
    """Print rows under headings; values are never parsed as markup and never truncated.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : sequence of sequences
        Each as long as ``columns``; a cell that is a tuple has a line for each of its values.
    title : str
        Line above the table.
    right : sequence of str
        Headings of the columns that are aligned to the right.
    whole : sequence of str
        Headings of the columns that are not folded, even if the terminal is too narrow for the table.
    keys : int
        Number of leading columns that identify a row. If the terminal is too narrow, the other columns are
        split into several tables, each with these. 0: one table with folded cells.
    """
    console = output_console()
    cells = [list(map(_cell, row)) for row in rows]
    for number, chosen in enumerate(_parts(_widths(columns, cells), keys, console.width)):
        shown = [columns[place] for place in chosen]
        values = [[row[place] for place in chosen] for row in cells]
        table = Table(
            title=None if number or not title else Text(printable(title), style="table.title"),
            title_justify="left",
            header_style="bold",
        )
        # Fold headings between words: rich makes all columns equally narrow.
        narrow = _fit(shown, values, console.width) and not _fit(
            [one.replace(" ", "_") for one in shown], values, console.width
        )
        for place, (column, width) in enumerate(zip(shown, _widths(shown, values), strict=True)):
            table.add_column(
                Text("\n".join(wrap(column, width - _BORDER) if narrow else [column])),
                justify="right" if column in right else "left",
                overflow="fold",
                no_wrap=place < keys or column in whole,
            )
        for row in values:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)


def fits_terminal(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Whether this table fits without breaking a value or a word of a heading."""
    return _fit(columns, [list(map(_cell, row)) for row in rows], output_console().width)


def _cell(value: object) -> str:
    return "\n".join(map(_cell, value)) if isinstance(value, tuple) else printable(str(value))


def _fit(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether this table has at most ``width`` characters per line, with headings folded between words."""
    return sum(_widths(columns, rows)) < width


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Widths of the columns in characters, with borders, if no value and no word of a heading is broken."""
    return [
        _BORDER + max(map(cell_len, (*column.split(), *(row[place] for row in rows))), default=0)
        for place, column in enumerate(columns)
    ]


def _parts(widths: Sequence[int], keys: int, most: int) -> list[list[int]]:
    """Indices of the columns of each table, with at most ``most`` characters per line."""
    room = most - 1 - sum(widths[:keys])
    parts: list[list[int]] = [[]]
    for place in range(keys, len(widths)):
        if keys and parts[-1] and sum(widths[one] for one in (*parts[-1], place)) > room:
            parts.append([])
        parts[-1].append(place)
    return [[*range(keys), *part] for part in parts]


def print_line(text: str, *, err: bool = False, lead: str = "", colour: str = "", hang: int = 0) -> None:
    """Print one line.

    Parameters
    ----------
    text : str
        The text; a line break in it is printed as an escape.
    err : bool
        Print on standard error instead of standard output.
    lead, colour : str
        The beginning of the line, and its colour.
    hang : int
        If the terminal is too narrow, the line is folded and continued with this indentation. Without a
        terminal it stays one line, so that it can be searched.
    """
    text = printable(text)
    if hang and sys.stdout.isatty():
        width = max(20 + hang, output_console().width)
        before, after = " " * len(lead), " " * hang
        folded = wrap(text, width, initial_indent=before, subsequent_indent=after, break_on_hyphens=False)
        text = "\n".join(folded).removeprefix(before)
    lead = typer.style(printable(lead), fg=colour) if lead else ""
    # Pass the stream explicitly: typer would use the original stream and write into a progress bar.
    typer.echo(lead + text, file=sys.stderr if err else sys.stdout)  # noqa: TID251


def print_json(value: object) -> None:
    """Print a value as indented JSON on standard output."""
    unicode = sys.stdout.encoding.lower().startswith("utf")
    sys.stdout.write(printable_json(json.dumps(value, indent=2, ensure_ascii=not unicode)) + "\n")


def print_error(message: str) -> None:
    """Print ``error: message`` in one line on standard error."""
    # Rich would wrap the line, and scripts search for it.
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    sys.stderr.write(f"{red}error:{plain} {printable(' '.join(message.split()))}\n")


@contextmanager
def progress_bar(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error; the yielded function takes the number of further steps done.

    Parameters
    ----------
    description : str
        Name of the work in progress.
    total : int, optional
        Number of steps. If unknown, an animation is shown without a percentage.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Other output is printed above the bar if both are on one terminal; else it goes to its own stream.
    shared = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=shared) as progress:
        task = progress.add_task(printable(description), total=total)
        yield lambda steps: progress.advance(task, steps)
