"""Progress of a run: the current cell, the number of remaining cells, and an estimate of the time left.

A cell takes from seconds to many minutes. The time left is estimated from the cells that this run has
finished. Until the first cell is finished, the bar shows the current stage instead. Without a terminal, each
finished cell is reported as one printed line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.command_line.terminal import print_line
from nearsight.common.errors import CallerError, NearsightError

_SHORTEST_SHOWN_S = 0.5


class CellProgress:
    """Counts the finished cells of a run and estimates the time left.

    Parameters
    ----------
    name : str
        Name of the experiment.
    total : int
        Number of cells of the whole run.
    before : int
        Number of cells that an earlier run finished.
    console : Console
        Shows the bar; prints a line per cell if it is no terminal.
    clock : Clock
        Measures the duration of the cells.
    """

    def __init__(
        self, name: str, total: int, before: int, console: Console, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._name = name
        self._total = total
        self._done = self._before = before
        self._console = console
        self._clock = clock
        self._started_s = self._cell_started_s = clock.monotonic()
        self._key = ""
        self._mean_s = 0.0
        self._stage = ""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Elapsed(),
            _Left(table_column=Column(no_wrap=True)),
        )
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        """The bar; it is shown while it is entered as a context manager."""
        self._task = self.bar.add_task(escape(name), total=total, completed=before, left=self.left)

    def begin(self, key: str) -> None:
        """Start the measurement of a cell."""
        self._key, self._stage = key, ""
        self._cell_started_s = self._clock.monotonic()
        self.bar.update(self._task, description=escape(f"{self._name}: {key}"))

    def stage(self, words: str) -> None:
        """Set the description of the cell's current stage."""
        self._stage = words

    def left(self) -> str:
        """Return the time left in words, or the current stage while there is no estimate."""
        if not self._mean_s:
            return self._stage
        in_part_s = min(self._clock.monotonic() - self._cell_started_s, self._mean_s)
        left_s = self._mean_s * (self._total - self._done) - in_part_s
        return f"about {in_words(left_s)} left" if left_s > 0 else ""

    def finish(self) -> None:
        """Record that the current cell is finished."""
        now_s = self._clock.monotonic()
        took_s, self._cell_started_s = now_s - self._cell_started_s, now_s
        self._done += 1
        self._mean_s = (now_s - self._started_s) / (self._done - self._before)
        self.bar.update(self._task, completed=self._done)
        if self._console.is_terminal:
            return
        # Cells that run in other processes are reported only when they are finished, so their durations are
        # unknown.
        what = self._key if took_s < _SHORTEST_SHOWN_S else f"{self._key} took {in_words(took_s)}"
        parts = (f"{self._done}/{self._total}", what, self.left())
        line = f"{self._name}: {', '.join(filter(None, parts))}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class _Elapsed(ProgressColumn):
    """Time since the start of this run."""

    def render(self, task: Task) -> Text:
        return Text(in_words(task.elapsed or 0.0))


class _Left(ProgressColumn):
    """Current value of `CellProgress.left`."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["left"]())


@contextmanager
def cell_progress(name: str, total: int, before: int, *, fresh: bool) -> Iterator[CellProgress]:
    """Show the progress of a run on standard error, and say how to continue a run that stops.

    Parameters
    ----------
    name, total, before
        As for `CellProgress`.
    fresh : bool
        Whether the command replaces earlier results.
    """
    if before:
        again = "; --fresh replaces them" if before == total else ""
        print_line(f"{before} of {total} parts were measured before{again}", err=True)
    progress = CellProgress(name, total, before, Console(stderr=True))
    try:
        with progress.bar:
            yield progress
    except (KeyboardInterrupt, NearsightError, OSError) as error:
        if not isinstance(error, CallerError):  # with these arguments the command would fail again
            same = "the same command without --fresh" if fresh else "the same command"
            print_line(f"stopped: completed parts are kept; {same} continues after them", err=True)
        raise


def in_words(seconds: float) -> str:
    """Format a duration, such as "8 s" or "0:12:30"."""
    rounded = round(seconds)
    return f"{rounded} s" if rounded < 100 else str(timedelta(seconds=rounded))
