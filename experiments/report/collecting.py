"""Reads a folder of results: finished runs that can be shown, and unusable folders with the reason.

Nothing is recomputed and nothing is written: a report shows stored results. An unusable folder never aborts a
report; it gets a line that states the problem and the remedy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nearsight.common.errors import CorruptStore, NotFound
from nearsight.experiments.framework.experiment import Target, not_judged
from nearsight.experiments.framework.registry import Entry, natural
from nearsight.experiments.framework.result_files import ResultFolder
from nearsight.experiments.report.settings_of_runs import command

_PNG = b"\x89PNG\r\n\x1a\n"
_FILES = ("run.json", "rows.csv", "summary.json", "cells")


class Environment(BaseModel):
    """Environment and time of a run, as far as they were stored."""

    model_config = ConfigDict(frozen=True)

    created: str = ""
    machine: str = "unknown machine"
    cores: int = 0
    memory_gib: float = 0.0
    system: str = ""
    python: str = ""
    versions: dict[str, str] = {}
    commit: str = ""
    load_average: tuple[float, ...] = ()


class _Run(BaseModel):
    """The parts of ``run.json`` that are shown."""

    model_config = ConfigDict(frozen=True)

    experiment: str
    """Its name in the registry."""
    configuration: dict[str, Any]
    """Options of the run."""
    environment: Environment
    """Machine, versions, commit and time."""
    rows_of: str = ""
    """Folder of the experiment that measured the rows; empty: this one."""


class Result(_Run):
    """A finished run: ``summary.json`` and its picture."""

    folder: Path
    """Its folder."""
    metrics: dict[str, Any]
    """Numbers computed from the rows."""
    targets: tuple[Target, ...]
    """Targets with their verdicts."""
    mixed: tuple[str, ...] = ()
    """Commits, machines and versions of rows of other environments; see `running.mixed_provenance`."""
    picture: bytes = b""
    """PNG data; empty if there is no picture."""
    problems: tuple[str, ...] = ()
    """Descriptions of missing or damaged parts, and of rows of other environments."""

    @property
    def smoke(self) -> bool:
        """Whether it is a smoke run, which is too small to be judged."""
        return bool(self.configuration.get("smoke"))

    @property
    def reached(self) -> int:
        """Number of reached targets."""
        return sum(bool(target.reached) for target in self.targets)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A folder without a usable result."""

    folder: Path
    """The folder."""
    experiment: str
    """Name of the experiment; empty if it is unreadable or unknown."""
    why: str
    """Description of the problem."""
    command: str = ""
    """Command that repairs it; empty if none is known."""


@dataclass(frozen=True, slots=True)
class Collection:
    """All folders of results that were found, sorted by name."""

    root: Path
    """The folder of results."""
    results: tuple[Result, ...]
    """Finished runs."""
    unusable: tuple[Unusable, ...]
    """Folders without a usable result."""

    @property
    def counted(self) -> tuple[Result, ...]:
        """Results that are not smoke runs."""
        return tuple(result for result in self.results if not result.smoke)

    def of(self, experiment: str) -> tuple[Result, ...]:
        """Results of one experiment: that in the folder of its name first, smoke runs last."""
        mine = (result for result in self.results if result.experiment == experiment)
        return tuple(sorted(mine, key=lambda one: (one.smoke, one.folder.name != experiment)))

    def unusable_of(self, experiment: str) -> tuple[Unusable, ...]:
        """Folders in which the experiment has no usable result."""
        return tuple(one for one in self.unusable if one.experiment == experiment)


def collect(root: Path, entries: Mapping[str, Entry]) -> Collection:
    """Read every subfolder of a folder of results; ``entries`` are the known experiments.

    Raises
    ------
    NotFound
        If there is no such folder.
    """
    if not root.is_dir():
        raise NotFound(
            f"there is no folder {root}",
            advice="run an experiment first, such as `nearsight experiment run fig6.3`, or give --results",
        )
    folders = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: natural(path.name))
    found = [one for folder in folders if (one := _read(folder, entries)) is not None]
    return Collection(
        root,
        tuple(one for one in found if isinstance(one, Result)),
        tuple(one for one in found if isinstance(one, Unusable)),
    )


def distinct_targets(results: Iterable[Result]) -> list[tuple[Target, list[Result]]]:
    """Return every target once, with the results that share it with the same value.

    Experiments that share the rows of a run may also share targets. Several runs of one experiment with the
    same options stay separate, even where their values agree.
    """
    found: dict[tuple[str, int, Target], list[Result]] = {}
    runs: Counter[tuple[str, str]] = Counter()
    for result in results:
        options = json.dumps(result.configuration, sort_keys=True, default=str)
        run = runs[result.experiment, options]
        runs[result.experiment, options] += 1
        for target in dict.fromkeys(result.targets):
            found.setdefault((options, run, target), []).append(result)
    return [(target, shared) for (_, _, target), shared in found.items()]


def reached_in_words(results: Iterable[Result]) -> str:
    """Number of reached targets, such as "3 of 4"."""
    targets = distinct_targets(results)
    return f"{sum(bool(target.reached) for target, _ in targets)} of {len(targets)}"


def _read(folder: Path, entries: Mapping[str, Entry]) -> Result | Unusable | None:
    """The result in a folder; None if the folder has no files of a run."""
    stored = ResultFolder(folder)
    try:
        if not any((folder / name).exists() for name in _FILES):
            return None
        if not stored.summary_path.exists():
            return _unusable(stored, entries, damaged=False)
    except OSError as error:
        return Unusable(folder, "", f"it cannot be read: {error.strerror}")
    try:
        result = Result.model_validate({**stored.summary(), "folder": folder})
    except (CorruptStore, ValidationError, TypeError, OSError):
        return _unusable(stored, entries, damaged=True)
    if result.experiment not in entries:
        return Unusable(folder, "", f"this version has no experiment {result.experiment!r}")
    if result.smoke:  # earlier versions also judged smoke runs
        result = result.model_copy(update={"targets": not_judged(result.targets)})
    return _with_picture(result)


def _with_picture(result: Result) -> Result:
    try:
        picture = (result.folder / f"{result.experiment}.png").read_bytes()
    except OSError:
        picture = b""
    problems = [
        f"Not all rows are of the environment in which the run began; {text}." for text in result.mixed
    ]
    if not picture.startswith(_PNG):
        again = command(result.experiment, result.configuration, result.folder, verb="plot")
        problems.append(f"The picture is missing or damaged; `{again}` draws it again.")
        picture = b""
    if not (result.folder / "rows.csv").is_file():
        problems.append("rows.csv is missing: the numbers can no longer be checked against their rows.")
    return result.model_copy(update={"picture": picture, "problems": tuple(problems)})


def _unusable(stored: ResultFolder, entries: Mapping[str, Entry], *, damaged: bool) -> Unusable:
    """Describe a folder whose summary is damaged or missing; run.json may name the experiment."""
    try:
        run = _Run.model_validate(stored.run_information())
    except (CorruptStore, NotFound, ValidationError, OSError):
        run = None
    if run is None or run.experiment not in entries:
        why = "run.json is missing or damaged, or names an unknown experiment"
        if damaged:
            why = "summary.json is damaged, and run.json does not name a known experiment"
        return Unusable(stored.path, "", why)
    again = command(run.experiment, run.configuration, stored.path)
    if stored.rows_path.is_file():
        why = "summary.json is damaged; the rows exist"
        if not damaged:
            why = "measured, but the metrics were not computed"
        mend = command(run.experiment, run.configuration, stored.path, verb="plot")
        return Unusable(stored.path, run.experiment, why, mend)
    if damaged:
        why = "summary.json is damaged, and its rows are missing"
        return Unusable(stored.path, run.experiment, why, f"{again} --fresh")
    cells = len(list((stored.path / "cells").glob("[!.]*.json")))  # without one that is being written
    state = f"stopped; finished parts: {cells}" if cells else "started; no part is finished"
    return Unusable(stored.path, run.experiment, f"{state}; the same command continues the run", again)
