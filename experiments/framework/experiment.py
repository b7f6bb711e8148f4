"""What a table or figure of the papers is made of: runs that give rows, numbers from rows, a picture.

The three are apart: rows are raw and are kept, metrics are pure functions of rows, and the picture is drawn
from files. So a figure can be improved, and a number recomputed, without measuring again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xxhash

from nearsight.common.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_OF_SOME = ("on", "costs", "costs_mark", "runs", "clients")
"""Options that only some experiments take."""

Row = Mapping[str, str | int | float]
"""One measurement, before it is written."""

StoredRow = Mapping[str, str]
"""One measurement as it stands in ``rows.csv``."""

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Columns and rows of a table for a person."""


def table_of(lines: Iterable[Mapping[str, object]]) -> Table:
    """A table of lines, of which there is at least one; all have the same keys, which are its columns."""
    first, *others = lines
    return tuple(first), [tuple(line.values()) for line in (first, *others)]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seed: int = 1
    """Everything random follows from it."""
    smoke: bool = False
    """A small run that only shows that everything works."""
    visits: Path | None = None
    """Stays of real visitors, for experiments that take them."""
    data: Path | None = None
    """Folder of a data set, for experiments that take one; without it a museum is generated."""
    museums: Path = Path("results/museums")
    """Where generated museums are kept; does not identify a run."""
    on: str = ""
    """On the "twin" or the "testbed", for experiments that run on both; else empty."""
    costs: str = ""
    """The twin's: "measured" on this machine, or the "paper"'s."""
    costs_mark: str = ""
    """Tells such costs apart."""
    runs: int = 0
    """With other traces each; 0: as many as the experiment wants."""
    clients: int = 0
    """Of closed loops; 0: as the experiment wants."""

    def configuration(self) -> dict[str, Any]:
        """Values that identify a run: results of different configurations are never mixed.

        Raises
        ------
        NotFound
            If there is no such file of visits or no such data set.
        """
        return {
            "seed": self.seed,
            "smoke": self.smoke,
            "visits": _fingerprint(self.visits),
            "data": _fingerprint_of_folder(self.data),
            **{name: value for name in _OF_SOME if (value := getattr(self, name))},
        }

    def rng(self, *parts: str | int) -> np.random.Generator:
        """Random numbers of one named part; they do not depend on what other parts draw."""
        named = [xxhash.xxh32_intdigest(str(part).encode()) for part in parts]
        return np.random.default_rng([self.seed, *named])


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a run. An interrupted run keeps the cells that are finished."""

    key: str
    """Unique in the run; letters, digits, dots and dashes."""
    parameters: Mapping[str, Any]
    """Its parameters."""


def cells_of(key: str, **parameters: Iterable[str | float]) -> tuple[Cell, ...]:
    """One cell per combination of parameters, the last changing first.

    ``key`` is a format of them; commas are left out of it, and blanks become dashes.
    """
    combinations = (dict(zip(parameters, one, strict=True)) for one in product(*parameters.values()))
    return tuple(Cell(key.format(**one).replace(",", "").replace(" ", "-"), one) for one in combinations)


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that the experiment should reach."""

    text: str
    """What, in words."""
    value: float
    """What was measured."""
    reached: bool | None
    """Whether that is enough; None: not judged, as the run was too small."""
    note: str = ""
    """Remarks, such as why it was missed."""

    @classmethod
    def at_most(cls, text: str, value: float, most: float, note: str = "", digits: int | None = None) -> Self:
        """Reached if the value is not larger; it is kept with so many ``digits``, if they are given."""
        return cls(text, value if digits is None else round(value, digits), value <= most, note)

    @classmethod
    def at_least(
        cls, text: str, value: float, least: float, note: str = "", digits: int | None = None
    ) -> Self:
        """Reached if the value is not smaller; as `at_most`."""
        return cls(text, value if digits is None else round(value, digits), value >= least, note)


def not_judged(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Targets of a smoke run: they were set for a run of full size."""
    return tuple(replace(target, reached=None) for target in targets)


@dataclass(frozen=True, slots=True)
class Results:
    """What a picture is drawn from."""

    rows: Sequence[StoredRow]
    """All of a run."""
    metrics: Mapping[str, Any]
    """Numbers from them."""


class Experiment(ABC):
    """One table or figure."""

    name: ClassVar[str]
    """As on the command line, such as "fig6.3"."""
    source: ClassVar[str]
    """Paper and section, such as "Cachier dissertation, 6.3". A class that states both is in the registry."""
    takes_visits: ClassVar[bool] = False
    """Whether ``--visits`` means anything to it."""
    takes_data: ClassVar[bool] = False
    """Whether ``--data`` does."""
    takes_machines: ClassVar[bool] = False
    """Whether ``--on``, ``--costs`` and ``--runs`` do: it runs on the twin or on the testbed."""
    takes_clients: ClassVar[bool] = False
    """Whether ``--clients`` does."""
    same_rows_as: ClassVar[str] = ""
    """An experiment that measures the same; its rows are used if they exist. Empty: none."""
    shares_cells_with: ClassVar[tuple[str, ...]] = ()
    """Experiments with common cells; their rows are used if they exist."""
    timed: ClassVar[bool] = True
    """Whether it measures times: then one cell runs at a time."""
    style: ClassVar[Any] = MappingProxyType({})
    """What differs in its picture from the style of all."""

    @abstractmethod
    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """The parts of a run, in the order in which they are run."""

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in options that are open, once before a run; ``say`` prints what takes long."""
        del say
        return options

    def cell_of(self, row: StoredRow) -> str:
        """The key of the cell that a row is from, for experiments that share cells."""
        raise NotImplementedError(f"{self.name} shares no cells: it has none of {dict(row)}")

    def processes(self, options: RunOptions) -> int:
        """Number of cells that run at a time."""
        return 1 if self.timed or options.smoke else 2

    @abstractmethod
    def run(self, cell: Cell, options: RunOptions) -> Sequence[Row]:
        """Measure one part; every row of an experiment has the same columns."""

    @abstractmethod
    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Numbers from rows, ready for JSON; pure."""

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """What should be reached, and was or was not; nothing by default."""
        del summary
        return ()

    @abstractmethod
    def table(self, summary: Mapping[str, Any]) -> Table:
        """Columns and rows to print for a person."""

    @abstractmethod
    def draw(self, results: Results) -> Picture:
        """Draw the picture; `running.conclude` sets the style before, and keeps it."""


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
    """Of the names and sizes of its files: reading every image of a data set would take long."""
    if folder is None:
        return ""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", advice="check the path of --data")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    return f"{folder.resolve().name}:{xxhash.xxh64_hexdigest(listing.encode())}"
