"""The demo's progress on the terminal: a bar per stage, with time left and live hit counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearsight.experiments.rig.devices import Tally

RECENT = 50


class LiveView:
    """Progress bars on standard error."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<25}"),
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[facts]}"),
            console=Console(stderr=True),
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bars within the block."""
        with self._progress:
            yield

    def stage(self, description: str, total: int | None = None) -> Callable[[int, int], None]:
        """Add a bar; what is returned takes the steps done and their total."""
        task = self._progress.add_task(description, total=total, facts="")

        def update(done: int, of: int) -> None:
            self._progress.update(task, completed=done, total=of)

        return update

    def configuration(
        self, name: str, requests: int
    ) -> tuple[Callable[[str], None], Callable[[Tally], None]]:
        """Add a bar for the requests of a configuration; returns what to tell of stages and of counts."""
        task = self._progress.add_task(name, total=requests, facts="")

        def on_stage(stage: str) -> None:
            self._progress.update(task, description=f"{name}: {stage}")

        def on_tally(tally: Tally) -> None:
            self._progress.update(task, completed=tally.done, facts=describe(tally))

        return on_stage, on_tally


def describe(tally: Tally) -> str:
    """Live counts in a few words: who answered, how fast of late."""
    parts = [f"{tier} {count}" for tier, count in sorted(tally.answered_by.items(), reverse=True)]
    if tally.failed:
        parts.append(f"failed {tally.failed}")
    if tally.latencies_ms:
        parts.append(f"median {statistics.median(tally.latencies_ms[-RECENT:]):.0f} ms")
    return ", ".join(parts)
