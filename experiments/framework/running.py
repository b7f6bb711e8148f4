"""Runs an experiment cell by cell, then computes the metrics and draws the picture.

A run continues where an earlier run stopped. A cell that fails ends the run and none of its rows are stored;
cells that finished before it are kept.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from nearsight.common.errors import CorruptStore, InternalError, InvalidArgument, NotFound
from nearsight.common.inference.process_memory import end_with_parent
from nearsight.experiments.framework.drawing import STYLE, save
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.framework.experiment import (
    OPTIONAL,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
    not_judged,
)
from nearsight.experiments.framework.numbers import counted, grouped
from nearsight.experiments.framework.result_files import ResultFolder


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished experiment."""

    summary: dict[str, Any]
    """Content of ``summary.json``."""
    targets: tuple[Target, ...]
    picture: Path


Cells = Mapping[str, Mapping[str, Any]]
"""Parts of a run: the parameters of each by its key. An interrupted run keeps its finished cells."""


def cells_of(experiment: Experiment, options: RunOptions) -> Cells:
    """All cells of a run, in the order in which they are run.

    Raises
    ------
    InvalidArgument
        If two cells would have the same name, because names of ``--data`` are too similar.
    """
    cells: dict[str, Mapping[str, Any]] = {}
    for parameters in experiment.cells(options):
        key = experiment.key(**parameters)
        if key in cells:
            raise InvalidArgument(
                f"several parts of this run would have the name {key}",
                advice="give the files of --data names that differ in letters or digits",
            )
        cells[key] = parameters
    return cells


def missing_cells(experiment: Experiment, options: RunOptions, out: Path) -> Cells:
    """Cells that a run into this folder still has to measure."""
    folder = ResultFolder(out)
    if folder.rows_path.is_file():
        return {}
    cells = cells_of(experiment, options)
    return {key: one for key, one in cells.items() if folder.finished_cell(key) is None}


def check(experiment: Experiment, options: RunOptions) -> None:
    """Check the options and their files.

    Raises
    ------
    InvalidArgument
        If the experiment does not accept one of them, or two of its cells would have the same name.
    NotFound
        If a file or folder does not exist.
    """
    for name in OPTIONAL:
        if getattr(options, name) and name not in experiment.takes:
            raise InvalidArgument(f"{experiment.name} does not use --{name}", advice=f"leave out --{name}")
    if options.data is not None and not options.data.is_dir():
        raise NotFound(f"there is no folder {options.data}", advice="check the path of --data")
    experiment.check(options)
    cells_of(experiment, options)


def prepare(experiment: Experiment, options: RunOptions, out: Path, *, fresh: bool = False) -> None:
    """Check the options and prepare the folder; ``fresh`` deletes earlier results.

    Raises
    ------
    InvalidArgument
        If the experiment does not accept an option, or the folder holds other results.
    """
    check(experiment, options)
    configuration = options.configuration()
    folder = ResultFolder(out)
    if fresh:
        folder.clear()
    folder.begin(experiment.name, configuration, describe_environment())


def adopt_rows(experiment: Experiment, out: Path, other: Path) -> bool:
    """Copy the rows of another experiment that measured the same; return whether rows were copied.

    The rows keep their original provenance.
    """
    mine, theirs = ResultFolder(out), ResultFolder(other)
    if mine.rows_path.is_file() or not theirs.rows_path.is_file():
        return False
    before, now = theirs.run_information(), mine.run_information()
    measured = (before.get("experiment"), before.get("configuration"))
    if measured != (experiment.same_rows_as, now["configuration"]):
        return False
    mine.adopt(theirs)
    return True


def adopt_cells(experiment: Experiment, options: RunOptions, out: Path, other: Path) -> int:
    """Copy cells that this run shares with another finished run; return their number.

    Both runs must have the same configuration. The rows keep their original provenance.
    """
    mine, theirs = ResultFolder(out), ResultFolder(other)
    if not theirs.rows_path.is_file():
        return 0
    if theirs.run_information().get("configuration") != mine.run_information()["configuration"]:
        return 0
    by_cell: dict[str, list[StoredRow]] = defaultdict(list)
    for row in theirs.rows():
        by_cell[experiment.key(**experiment.cell_of(row))].append(row)
    adopted = missing_cells(experiment, options, out).keys() & by_cell.keys()
    for key in adopted:
        mine.keep_cell(key, by_cell[key])
    return len(adopted)


def run_cells(
    experiment: Experiment,
    options: RunOptions,
    out: Path,
    advance: Callable[[], None],
    begin: Callable[[str], None] = lambda _key: None,
) -> None:
    """Measure the missing cells and write ``rows.csv``.

    ``begin`` is called with the key of each cell before it is measured, ``advance`` after it. Cells that run
    in other processes are reported to both when they are finished. Rows keep the provenance of the run that
    measured them.

    Raises
    ------
    CorruptStore
        If the files of finished cells disappeared during the run.
    """
    folder = ResultFolder(out)
    if folder.rows_path.is_file():
        return
    missing = missing_cells(experiment, options, out)
    provenance = _provenance(folder.run_information()["configuration"], describe_environment())

    def keep(key: str, rows: Sequence[Row]) -> None:
        folder.keep_cell(key, [{**provenance, **row} for row in rows])
        advance()

    processes = experiment.processes(options)
    if processes > 1 and len(missing) > 1:
        for key, rows in run_in_processes(experiment, options, missing, processes):
            begin(key)
            keep(key, rows)
    else:
        for key, parameters in missing.items():
            begin(key)
            keep(key, run_cell(experiment, options, parameters))
    kept: list[Row] = []
    for key in cells_of(experiment, options):
        finished = folder.finished_cell(key)
        if finished is None:
            raise CorruptStore(
                f"the finished part {key} disappeared from {out} during the run",
                advice="let no other run use this folder, and run the same command again",
            )
        kept.extend(finished)
    folder.keep_rows(kept, provenance)


def run_in_processes(
    experiment: Experiment, options: RunOptions, cells: Cells, processes: int
) -> Iterator[tuple[str, Sequence[Row]]]:
    """Run cells in several processes; for experiments that compute and do not measure time.

    Each key is yielded with its rows when the cell is finished, in any order, so that an interrupted run
    keeps it. If a cell fails or the caller stops, the other processes are terminated.

    Raises
    ------
    Exception
        The exception that a cell raised.
    InternalError
        If a process ended before its cell.
    """
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(cells)), spawn, _begin_work, (os.getpid(),))
    try:
        running = {pool.submit(run_cell, experiment, options, one): key for key, one in cells.items()}
        for done in as_completed(running):
            yield running[done], done.result()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        # The pool's thread reaps the processes: `join` could return early here. That thread is not waited
        # for, because it may read a result of which a process wrote only a part.
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
            connection.wait([process.sentinel])
        if isinstance(error, BrokenProcessPool):
            raise InternalError(
                "a process that measured a part ended suddenly",
                advice="was it killed because the memory was full? See the log of the kernel",
            ) from error
        raise
    pool.shutdown()


def run_cell(experiment: Experiment, options: RunOptions, parameters: Mapping[str, Any]) -> list[Row]:
    """Measure one cell."""
    return list(experiment.run(options, **parameters))


def _begin_work(parent_pid: int) -> None:
    """Prepare a worker process: one thread; Ctrl-C is left to the parent; it ends when the parent ends."""
    from nearsight.common.recognition.object_recognizer import pin_threads  # noqa: PLC0415

    end_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin_threads()


def conclude(experiment: Experiment, out: Path) -> Outcome:
    """Compute the metrics and draw the picture, from stored files only.

    Raises
    ------
    CorruptStore
        If the files lack data that this version of the experiment reads.
    """
    folder = ResultFolder(out)
    rows = folder.rows()
    information = folder.run_information()
    try:
        metrics = experiment.metrics(rows)
        targets = tuple(experiment.targets(metrics))
        if information["configuration"]["smoke"]:
            targets = not_judged(targets)
    except (LookupError, ValueError) as error:
        problem = f"lacks {error}" if isinstance(error, LookupError) else f"cannot be read: {error}"
        raise CorruptStore(
            f"{out} {problem}; it is damaged, or from another version of {experiment.name}",
            advice="measure again with --fresh, or into another folder with --out",
        ) from error
    summary = {
        **information,
        "mixed": mixed_provenance(rows, information),
        "metrics": metrics,
        "targets": [asdict(target) for target in targets],
    }
    folder.keep_summary(summary)
    picture = out / f"{experiment.name}.png"
    with rc_context({**STYLE, **experiment.style}):
        save(experiment.draw(Results(rows, metrics)), picture)
    return Outcome(summary, targets, picture)


Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Columns and rows of a printed table."""


def table_of(experiment: Experiment, summary: Mapping[str, Any]) -> Table:
    """The table of an experiment's metrics."""
    lines = list(experiment.table(summary))
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return columns, [[line.get(name, "") for name in columns] for line in lines]


def mixed_provenance(rows: Sequence[StoredRow], information: Mapping[str, Any]) -> list[str]:
    """Commits, machines, Pythons and versions of the rows, where they are not only those of ``run.json``.

    That file has those of the start of a run. A run that was continued later, or that uses rows of other
    experiments, has rows of others.
    """
    stated = _provenance(information["configuration"], information["environment"])
    found = []
    for column in ("commit", "machine", "python", "versions"):
        groups = grouped(rows, column)
        if groups.keys() <= {stated[column]}:
            continue
        common: set[str] = set()
        if column == "versions":  # a long list, most of which is the same
            common = set.intersection(*(set(str(value).split()) for value in (stated[column], *groups)))
        parts = []
        for value, group in groups.items():
            words = " ".join(word for word in value.split() if word not in common)
            parts.append(f"{words or 'others'} ({counted(len(group), 'row')})")
        found.append(f"{column}: {', '.join(parts)}")
    return found


def _provenance(configuration: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, str | int]:
    others = {key: value for key, value in configuration.items() if key != "seed"}
    versions = " ".join(f"{name}={version}" for name, version in environment["versions"].items())
    return {
        "seed": configuration["seed"],
        "configuration": json.dumps(others),
        "commit": environment["commit"],
        "machine": environment["machine"],
        "python": environment["python"],
        "versions": versions,
    }
