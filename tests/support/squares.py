"""A small experiment in its own module, so that other processes can import it."""

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nearsight.common.errors import Unavailable
from nearsight.experiments.framework.drawing import Picture, new_picture
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target


class Squares(Experiment):
    """Measures n² for n = 0 … 3; can be set to fail."""

    name: ClassVar[str] = "squares"

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.fails_at = ""

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        return [{"name": "n", "n": n} for n in range(2 if options.smoke else 4)]

    def run(self, options: RunOptions, name: str, n: int) -> Iterable[Row]:
        key = f"{name}-{n}"
        if key == self.fails_at:
            raise Unavailable("the edge went away")
        self.measured.append(key)
        yield {"n": n, "square": n * n, "noise": float(options.rng(key).random())}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        return {"sum": sum(int(row["square"]) for row in rows)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        return (Target("sum over 10", summary["sum"], summary["sum"] > 10),)

    def table(self, summary: Mapping[str, Any]) -> list[dict[str, object]]:
        return [{"sum": summary["sum"]}]

    def draw(self, results: Results) -> Picture:
        return new_picture(1, 1)


class SquaresAtOnce(Squares):
    """Runs two cells at a time, each in its own process."""

    timed = False

    def run(self, options: RunOptions, name: str, n: int) -> Iterable[Row]:
        return [{**row, "noise": os.getpid()} for row in super().run(options, name, n)]


class Endless(Squares):
    """Two cells that record the process that runs them, and never end.

    Parameters
    ----------
    folder : Path
        Receives a file named after each process.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        return super().cells(options)[:2]

    def run(self, options: RunOptions, name: str, n: int) -> list[Row]:
        (self._folder / f"{os.getpid()}.pid").touch()
        while True:
            signal.pause()


class Killed(SquaresAtOnce):
    """Runs two cells at a time; the process of the last cell ends, as when the memory is full."""

    def run(self, options: RunOptions, name: str, n: int) -> Iterable[Row]:
        if n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(options, name, n)
