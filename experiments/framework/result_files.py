"""The files in the result folder of one experiment; each file is written atomically.

======================  ============================================================
``run.json``            configuration and environment of the run
``cells/KEY.json``      rows of a finished cell, with provenance; removed when all cells are finished
``rows.csv``            all rows, each with seed, configuration, commit, machine and versions
``summary.json``        metrics, targets, configuration and environment
``NAME.png``            the picture
======================  ============================================================
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearsight.common.errors import CorruptStore, InvalidArgument, NotFound
from nearsight.common.files import write_atomically, write_json
from nearsight.experiments.framework.experiment import Row, StoredRow

PROVENANCE = ("seed", "configuration", "commit", "machine", "python", "versions")


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """The folder with the results of one run."""

    path: Path

    @property
    def rows_path(self) -> Path:
        """Path of ``rows.csv``."""
        return self.path / "rows.csv"

    @property
    def summary_path(self) -> Path:
        """Path of ``summary.json``."""
        return self.path / "summary.json"

    def begin(self, name: str, configuration: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Start a run in this folder, or continue one of the same configuration.

        Raises
        ------
        InvalidArgument
            If the folder holds results of another experiment or configuration, or cannot be written.
        """
        run_path = self.path / "run.json"
        if run_path.exists():
            before = _read_json(run_path)
            if (before.get("experiment"), before.get("configuration")) != (name, dict(configuration)):
                raise InvalidArgument(
                    f"{self.path} contains results of {before.get('experiment')} with other settings",
                    advice="choose another folder with --out, or replace them with --fresh",
                )
            return
        run = {"experiment": name, "configuration": configuration, "environment": environment}
        try:
            write_json(run_path, run)
        except OSError as error:
            raise InvalidArgument(
                f"cannot write to {self.path}: {error.strerror}", advice="choose another folder with --out"
            ) from error

    def clear(self) -> None:
        """Delete the results of an earlier run and their picture; other files stay."""
        with suppress(NotFound, CorruptStore):
            (self.path / f"{self.run_information().get('experiment')}.png").unlink(missing_ok=True)
        shutil.rmtree(self.path / "cells", ignore_errors=True)
        for name in ("rows.csv", "summary.json", "run.json"):
            (self.path / name).unlink(missing_ok=True)

    def keep_cell(self, key: str, rows: Sequence[Row]) -> None:
        """Store the rows of a finished cell."""
        content = json.dumps([dict(row) for row in rows])
        write_atomically(self.path / "cells" / f"{key}.json", content.encode())

    def finished_cell(self, key: str) -> Sequence[Row] | None:
        """Rows of a cell that an earlier run finished; None if the cell is new or its file is damaged."""
        try:
            rows: list[Row] = _read_json(self.path / "cells" / f"{key}.json")
        except (NotFound, CorruptStore):
            return None
        return rows

    def keep_rows(self, rows: Sequence[Row], provenance: Mapping[str, str | int]) -> None:
        """Write ``rows.csv`` and remove the files of cells; rows that have a provenance keep it.

        Columns that are missing in rows of another run are empty.
        """
        text = io.StringIO(newline="")
        columns = [name for name in dict.fromkeys(itertools.chain(*rows)) if name not in PROVENANCE]
        writer = csv.DictWriter(text, [*columns, *PROVENANCE], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**provenance, **row} for row in rows)
        write_atomically(self.rows_path, text.getvalue().encode())
        shutil.rmtree(self.path / "cells", ignore_errors=True)

    def adopt(self, other: ResultFolder) -> None:
        """Copy the rows and the environment of a finished run that measured the same."""
        environment = other.run_information()["environment"]
        run = {**self.run_information(), "rows_of": str(other.path), "environment": environment}
        write_json(self.path / "run.json", run)
        write_atomically(self.rows_path, other.rows_path.read_bytes())
        shutil.rmtree(self.path / "cells", ignore_errors=True)

    def rows(self) -> list[StoredRow]:
        """Return all rows of a finished run.

        Raises
        ------
        NotFound, CorruptStore
            If there are no rows in the folder, or they are damaged.
        """
        if not self.rows_path.is_file():
            raise NotFound(f"there are no results in {self.path}", advice="run the experiment first")
        try:
            with self.rows_path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise _damaged(self.rows_path) from error
        if any(None in row or None in row.values() for row in rows):  # fields are missing or surplus
            raise _damaged(self.rows_path)
        return [*rows]

    def run_information(self) -> dict[str, Any]:
        """Content of ``run.json``."""
        information: dict[str, Any] = _read_json(self.path / "run.json")
        return information

    def summary(self) -> dict[str, Any]:
        """Content of ``summary.json``."""
        summary: dict[str, Any] = _read_json(self.summary_path)
        return summary

    def keep_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        write_json(self.summary_path, summary)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}", advice="run the experiment first") from error
    except ValueError as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CorruptStore:
    return CorruptStore(f"{path} is damaged", advice="run the experiment again with --fresh")
