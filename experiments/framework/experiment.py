"""The interface of an experiment: runs that give rows, metrics computed from rows, and a picture.

These three steps are separate. Rows are raw measurements and are stored, metrics are pure functions of rows,
and the picture is drawn from stored files. A figure can therefore be improved, and a number recomputed,
without measuring again.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xxhash

from nearsight.common.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

ON_MACHINES = ("on", "costs", "runs")
"""Options of experiments that run on the twin or on the testbed."""

OPTIONAL = ("visits", "data", *ON_MACHINES, "clients")
"""Options that only some experiments accept."""

_IF_SET = ("on", "costs", "costs_mark", "runs", "clients")
"""Options that are a part of the configuration only if they are set."""

Row = Mapping[str, str | int | float]
"""One measurement, before it is written."""

StoredRow = Mapping[str, str]
"""One measurement as read from ``rows.csv``."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seed: int = 1
    """Seed of all random numbers of the run."""
    smoke: bool = False
    """Whether the run is a small one that only shows that everything works."""
    visits: Path | None = None
    """File with visits of real visitors, for experiments that accept one."""
    data: Path | None = None
    """Folder of a data set, for experiments that accept one; None: a museum is generated."""
    museums: Path = Path("results/museums")
    """Folder in which generated museums are kept; not part of the configuration."""
    on: str = ""
    """"twin" or "testbed", for experiments that run on both; else empty."""
    costs: str = ""
    """Costs and machines of the twin, for experiments that run on it; else empty.

    "measured": costs of this machine, machines of table 6.1; "testbed": this machine, as on the testbed;
    "paper": the dissertation's costs.
    """
    costs_mark: str = ""
    """Identifies these costs, so that results with different costs are not mixed."""
    runs: int = 0
    """Number of runs, each with another trace; 0: the experiment's default."""
    clients: int = 0
    """Number of closed-loop clients; 0: the experiment's default."""

    def configuration(self) -> dict[str, Any]:
        """Values that identify a run; results with different configurations are never mixed.

        Raises
        ------
        NotFound
            If the file of visits does not exist.
        InvalidArgument
            If the file of visits cannot be read.
        """
        return {
            "seed": self.seed,
            "smoke": self.smoke,
            "visits": _fingerprint(self.visits),
            "data": _fingerprint_of_folder(self.data),
            **{name: value for name in _IF_SET if (value := getattr(self, name))},
        }

    def rng(self, *parts: str | int) -> np.random.Generator:
        """Random number generator of one named part; independent of the draws of other parts."""
        named = [xxhash.xxh32_intdigest(str(part).encode()) for part in parts]
        return np.random.default_rng([self.seed, *named])


@dataclass(frozen=True, slots=True)
class Target:
    """A value that the experiment should reach."""

    text: str
    value: float
    reached: bool | None
    """Whether the target is reached; None: not judged, because the run was too small."""
    note: str = ""
    """Remarks, such as why the target was missed."""

    @classmethod
    def at_most(cls, text: str, value: float, most: float, note: str = "", digits: int | None = None) -> Self:
        """Target reached if ``value <= most``; the stored value is rounded to ``digits``, if given."""
        return cls(text, value if digits is None else round(value, digits), value <= most, note)

    @classmethod
    def at_least(
        cls, text: str, value: float, least: float, note: str = "", digits: int | None = None
    ) -> Self:
        """Target reached if ``value >= least``; ``digits`` as in `at_most`."""
        return cls(text, value if digits is None else round(value, digits), value >= least, note)


def not_judged(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Mark the targets of a smoke run as not judged: they were set for a run of full size."""
    return tuple(replace(target, reached=None) for target in targets)


@dataclass(frozen=True, slots=True)
class Results:
    """Input of a picture: all rows of a run, and the metrics computed from them."""

    rows: Sequence[StoredRow]
    metrics: Mapping[str, Any]


class Experiment(ABC):
    """One table or figure."""

    name: ClassVar[str]
    """Name on the command line, such as "fig6.3"."""
    source: ClassVar[str]
    """Paper and section, such as "Cachier dissertation, 6.3". A class that states both is in the registry."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The accepted ones of the `OPTIONAL` options."""
    shares_cells_with: ClassVar[tuple[str, ...]] = ()
    """Names of experiments with common cells, whose rows are used if they exist."""
    timed: ClassVar[bool] = True
    """Whether it measures times; then only one cell runs at a time."""
    style: ClassVar[Any] = MappingProxyType({})
    """Settings of its picture that differ from the common style."""

    @property
    def same_rows_as(self) -> str:
        """Name of the experiment that it inherits from, whose rows are therefore the same; empty: none."""
        return next((vars(one)["name"] for one in type(self).__mro__[1:] if "name" in vars(one)), "")

    @abstractmethod
    def cells(self, options: RunOptions) -> Iterable[Mapping[str, Any]]:
        """Return the parameters of each cell of a run, in the order in which the cells are run."""

    def key(self, **parameters: Any) -> str:
        """Return the name of a cell, unique in a run: letters, digits, dots and dashes."""
        return re.sub(r"[^\w.]+", "-", "-".join(map(str, parameters.values()))).strip("-")

    def check(self, options: RunOptions) -> None:
        """Check the files of ``--visits`` and ``--data``, before earlier results are deleted.

        By default there is nothing to check.

        Raises
        ------
        NotFound, InvalidArgument
            If a file is missing or unusable.
        """
        del options

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in open options, once before a run; ``say`` prints a message before steps that take long."""
        del say
        return options

    def cell_of(self, row: StoredRow) -> Mapping[str, Any]:
        """Return the parameters of the cell that a row belongs to, in the order of `cells`.

        Only experiments that share cells need it.
        """
        raise NotImplementedError(f"{self.name} shares no cells, so {dict(row)} belongs to none")

    def processes(self, options: RunOptions) -> int:
        """Number of cells that run at a time."""
        return 1 if self.timed or options.smoke else 2

    @abstractmethod
    def run(self, options: RunOptions, *_: Any, **parameters: Any) -> Iterable[Row]:
        """Measure the cell with these parameters; all rows of an experiment have the same columns.

        An experiment names its own parameters; the type checker accepts that only with ``*_`` here.
        """

    @abstractmethod
    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Compute numbers from rows, ready for JSON; a pure function."""

    def targets(self, summary: Mapping[str, Any]) -> Iterable[Target]:
        """Return the targets with their verdicts; none by default."""
        del summary
        return ()

    @abstractmethod
    def table(self, summary: Mapping[str, Any]) -> Iterable[Mapping[str, object]]:
        """Return the lines of the table to print, by column; columns that a line lacks are empty."""

    @abstractmethod
    def draw(self, results: Results) -> Picture:
        """Draw the picture; `running.conclude` sets the style before and saves the picture."""


def _fingerprint(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return f"{path.name}:{xxhash.xxh64_hexdigest(path.read_bytes())}"
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}", advice="check the path of --visits") from error
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}") from error


def _fingerprint_of_folder(folder: Path | None) -> str:
    """Hash the names and contents of a folder's files; hidden ones, such as a trained index, do not count."""
    if folder is None:
        return ""
    hashed = xxhash.xxh64()
    found = list[Path]()
    for place, subfolders, names in os.walk(folder, followlinks=True):  # they may be links to another disk
        here = Path(place)
        above = {one.resolve() for one in (here, *here.parents)}  # a link back to one of these has no end
        subfolders[:] = [one for one in subfolders if (here / one).resolve() not in above]
        found += (here / name for name in names)
    for path in sorted(found):
        if path.is_file() and not path.name.startswith("."):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, xxhash.xxh64).digest()
            hashed.update(os.fsencode(path.relative_to(folder)) + b"\0" + content)
    return f"{folder.resolve().name}:{hashed.hexdigest()}"
