"""What lies in a folder of results: results that can be shown, and folders that hold none, with the reason.

Nothing is computed anew and nothing is written: a report shows what was measured. A folder that cannot be
used never ends a report; it gets a line that says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nearsight.common.errors import CorruptStore, NotFound
from nearsight.experiments.framework.registry import Entry, natural
from nearsight.experiments.framework.result_files import ResultFolder
from nearsight.experiments.report.settings_of_runs import command, is_smoke

_PNG = b"\x89PNG\r\n\x1a\n"
_FILES = ("run.json", "rows.csv", "summary.json", "cells")


class Target(BaseModel):
    """What should be reached, and was or was not; as stored."""

    model_config = ConfigDict(frozen=True)

    text: str
    value: float
    reached: bool
    note: str = ""


class Environment(BaseModel):
    """Where and when a run was made, as far as it was stored."""

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
    """``run.json``, as far as it is shown."""

    experiment: str
    configuration: dict[str, Any]
    environment: Environment
    rows_of: str = ""


class _Summary(_Run):
    """``summary.json``."""

    metrics: dict[str, Any]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run.

    Attributes
    ----------
    folder : Path
        Where it lies.
    experiment : str
        Its name in the registry.
    configuration : mapping
        Options of the run.
    environment : Environment
        Machine, versions, commit and time.
    rows_of : str
        Folder of another experiment that measured the rows; empty: they are its own.
    metrics : mapping
        Numbers from the rows.
    targets : tuple of Target
        What should be reached, and was or was not.
    picture : bytes
        PNG; empty if there is none.
    problems : tuple of str
        What is missing from it, in words.
    """

    folder: Path
    experiment: str
    configuration: Mapping[str, Any]
    environment: Environment
    rows_of: str
    metrics: Mapping[str, Any]
    targets: tuple[Target, ...]
    picture: bytes = b""
    problems: tuple[str, ...] = ()

    @property
    def smoke(self) -> bool:
        """Whether it measured too little to judge by."""
        return is_smoke(self.configuration)

    @property
    def reached(self) -> int:
        """How many of its targets were."""
        return sum(target.reached for target in self.targets)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A folder without a result.

    Attributes
    ----------
    folder : Path
        Which.
    experiment : str
        What was to be measured; empty if not even that can be read.
    why : str
        What is wrong, in words.
    command : str
        What mends it; empty if nothing is known to.
    """

    folder: Path
    experiment: str
    why: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """All that was found.

    Attributes
    ----------
    root : Path
        The folder of results.
    results : tuple of Result
        By name of the folder.
    unusable : tuple of Unusable
        By name of the folder.
    """

    root: Path
    results: tuple[Result, ...]
    unusable: tuple[Unusable, ...]

    def of(self, experiment: str) -> tuple[Result, ...]:
        """Results of one experiment: the one in the folder of its name first, smoke runs last."""
        mine = (result for result in self.results if result.experiment == experiment)
        return tuple(sorted(mine, key=lambda one: (one.smoke, one.folder.name != experiment)))

    def unusable_of(self, experiment: str) -> tuple[Unusable, ...]:
        """Folders in which it has no result."""
        return tuple(one for one in self.unusable if one.experiment == experiment)


def collect(root: Path, entries: Mapping[str, Entry]) -> Collection:
    """Read every folder in a folder of results.

    Parameters
    ----------
    root : Path
        Has a folder for every result.
    entries : mapping
        The experiments that are known.

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
    found = [_read(folder, entries) for folder in folders if any((folder / name).exists() for name in _FILES)]
    return Collection(
        root,
        tuple(one for one in found if isinstance(one, Result)),
        tuple(one for one in found if isinstance(one, Unusable)),
    )


def _read(folder: Path, entries: Mapping[str, Entry]) -> Result | Unusable:
    stored = ResultFolder(folder)
    if not stored.summary_path.exists():
        return _without_summary(stored, entries)
    try:
        summary = _Summary.model_validate(stored.summary())
    except (CorruptStore, ValidationError, OSError):
        return _damaged(stored, entries)
    if summary.experiment not in entries:
        return Unusable(folder, "", f"this version knows no experiment {summary.experiment!r}")
    result = Result(
        folder,
        summary.experiment,
        summary.configuration,
        summary.environment,
        summary.rows_of,
        summary.metrics,
        summary.targets,
    )
    return _with_picture(result)


def _with_picture(result: Result) -> Result:
    try:
        picture = (result.folder / f"{result.experiment}.png").read_bytes()
    except OSError:
        picture = b""
    problems = []
    if not picture.startswith(_PNG):
        again = command(result.experiment, result.configuration, result.folder, verb="plot")
        problems.append(f"The picture is missing or damaged; `{again}` draws it again.")
        picture = b""
    if not (result.folder / "rows.csv").is_file():
        problems.append("rows.csv is missing: the numbers can no longer be checked against their rows.")
    return replace(result, picture=picture, problems=tuple(problems))


def _damaged(stored: ResultFolder, entries: Mapping[str, Entry]) -> Unusable:
    """A summary that cannot be read; run.json may still tell whose it is."""
    run = _run_of(stored, entries)
    if run is None:
        return Unusable(stored.path, "", "summary.json is damaged, and run.json does not say what was run")
    if stored.rows_path.is_file():
        mend = command(run.experiment, run.configuration, stored.path, verb="plot")
        return Unusable(stored.path, run.experiment, "summary.json is damaged; its rows are there", mend)
    mend = command(run.experiment, run.configuration, stored.path) + " --fresh"
    return Unusable(stored.path, run.experiment, "summary.json is damaged, and its rows are missing", mend)


def _without_summary(stored: ResultFolder, entries: Mapping[str, Entry]) -> Unusable:
    run = _run_of(stored, entries)
    if run is None:
        return Unusable(stored.path, "", "run.json is missing, damaged or of an experiment unknown here")
    if stored.rows_path.is_file():
        mend = command(run.experiment, run.configuration, stored.path, verb="plot")
        return Unusable(stored.path, run.experiment, "measured, but its numbers were not computed", mend)
    mend = command(run.experiment, run.configuration, stored.path)
    parts = len(list((stored.path / "cells").glob("*.json")))
    begun = f"stopped; finished parts: {parts}" if parts else "begun; no part is finished"
    return Unusable(stored.path, run.experiment, f"{begun}; the same command goes on", mend)


def _run_of(stored: ResultFolder, entries: Mapping[str, Entry]) -> _Run | None:
    try:
        run = _Run.model_validate(stored.run_information())
    except (CorruptStore, NotFound, ValidationError, OSError):
        return None
    return run if run.experiment in entries else None
