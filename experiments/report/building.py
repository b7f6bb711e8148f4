"""From a folder of results to one HTML file, written completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.collecting import Collection, Environment, collect
from nearsight.experiments.report.page import build_page


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written.

    Attributes
    ----------
    path : Path
        The file.
    size_bytes : int
        Of the file.
    collection : Collection
        What it shows.
    """

    path: Path
    size_bytes: int
    collection: Collection


def write_report(
    results: Path,
    out: Path,
    entries: Mapping[str, Entry],
    begin: Callable[[str], None] = lambda _name: None,
) -> Report:
    """Read a folder of results and write the page.

    Parameters
    ----------
    results : Path
        Has a folder for every result.
    out : Path
        The file; one that is there is replaced.
    entries : mapping
        The experiments that belong into the report.
    begin : callable
        Hears the name of every experiment before its section is written.

    Raises
    ------
    NotFound
        If there is no such folder.
    InvalidArgument
        If the file cannot be written.
    """
    collection = collect(results, entries)
    page = build_page(collection, Environment.model_validate(describe_environment()), entries, begin)
    temporary = out.with_name(out.name + ".part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InvalidArgument(
            f"cannot write {out}: {error.strerror}", advice="choose another file with --out"
        ) from error
    return Report(out, out.stat().st_size, collection)
