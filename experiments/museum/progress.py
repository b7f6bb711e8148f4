"""A progress bar on the error stream, so that what a command prints can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that is moved by calling it with (done, total)."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(what, total=None)

    def update(done: int, total: int) -> None:
        progress.start()  # only now: a command that is refused shows its error alone
        progress.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        progress.stop()
