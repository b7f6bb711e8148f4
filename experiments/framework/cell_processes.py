"""Cells of an experiment in several processes at a time: for those that compute and do not measure time.

Each finished cell comes back at once, in whatever order they finish, so an interrupted run keeps it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from nearsight.experiments.framework.experiment import Cell, Experiment, Row, RunOptions

_PR_SET_PDEATHSIG = 1


def run_in_processes(
    experiment: Experiment, options: RunOptions, cells: Sequence[Cell], processes: int
) -> Iterator[tuple[Cell, Sequence[Row]]]:
    """Run cells, so many at a time; if one fails, or the caller stops, the others are stopped.

    Raises
    ------
    Exception
        What a cell raised.
    """
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(processes, len(cells)), multiprocessing.get_context("spawn"), initializer=_begin_work
    )
    try:
        running = {pool.submit(experiment.run, cell, options): cell for cell in cells}
        for done in as_completed(running):
            yield running[done], done.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
            process.join()
        raise
    pool.shutdown()


def _begin_work() -> None:
    """A process of its own: one thread; the parent alone hears Ctrl-C, and does not leave it behind."""
    from nearsight.common.recognition.object_recognizer import pin_threads  # noqa: PLC0415

    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin_threads()
