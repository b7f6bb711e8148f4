"""Writes a folder of results as one HTML file that needs no network, for screen, phone and print.

The templates define the layout. This module computes their contents and formats values.
"""

from __future__ import annotations

import base64
import inspect
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from pydantic import BaseModel, ConfigDict

from nearsight.common.errors import CorruptStore, InvalidArgument
from nearsight.common.files import write_atomically
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.framework.experiment import Experiment
from nearsight.experiments.framework.registry import Entry, find_experiment
from nearsight.experiments.framework.running import Table, table_of
from nearsight.experiments.report.collecting import (
    Collection,
    Environment,
    Result,
    collect,
    distinct_targets,
    reached_in_words,
)
from nearsight.experiments.report.comparison import compare, number, paired
from nearsight.experiments.report.embedded_rows import embed_rows
from nearsight.experiments.report.settings_of_runs import ON, TESTBED, TWIN, command, in_words

_LONGEST_NUMBER = 30


class Published(BaseModel):
    """Statements of a paper about one of its tables or figures; read from ``paper.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str
    """Section, and the part of it."""
    says: tuple[str, ...]
    """Its findings, one sentence each."""
    setup: str = ""
    """Machines, network and data of the paper's measurement; empty if nothing was measured."""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """Its values as a table; empty if the paper prints none."""


@cache
def published() -> Mapping[str, Published]:
    """Read all published statements, by name of the experiment."""
    text = files("nearsight.experiments.report").joinpath("paper.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    setups: dict[str, str] = read.pop("setups")
    found = {}
    for name, values in read.items():
        setup = values.get("setup", "")
        found[name] = Published(**{**values, "setup": setups.get(setup, setup)})
    return MappingProxyType(found)


def write_report(
    results: Path,
    out: Path,
    entries: Mapping[str, Entry],
    begin: Callable[[str], None] = lambda _name: None,
) -> Collection:
    """Read a folder of results, write the page atomically, and return the results that it shows.

    Parameters
    ----------
    results : Path
        Folder with one subfolder per result.
    out : Path
        The HTML file; an existing file is replaced.
    entries : mapping
        The experiments of the report; those without results are listed too.
    begin : callable
        Called with the name of each experiment before its section is written.

    Raises
    ------
    NotFound
        If there is no such folder.
    InvalidArgument
        If the file cannot be written.
    """
    collection = collect(results, entries)
    page = _page(collection, entries, begin)
    try:
        write_atomically(out, page.encode())
    except OSError as error:
        raise InvalidArgument(
            f"cannot write {out}: {error.strerror}", advice="choose another file with --out"
        ) from error
    return collection


def chapters(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Group experiments by chapter: title, such as "Cachier dissertation, chapter 3" → names."""
    found: dict[str, list[str]] = {}
    for name, entry in entries.items():
        paper, section = entry.place
        found.setdefault(f"{paper}, chapter {section[0]}" if section else paper, []).append(name)
    return found


def _page(collection: Collection, entries: Mapping[str, Entry], begin: Callable[[str], None]) -> str:
    counted = [result for name in entries for result in collection.of(name) if not result.smoke]
    smoke = [result for name in entries for result in collection.of(name) if result.smoke]
    first = {result.experiment: result for result in reversed(counted)}
    begun = {name for name in entries if collection.of(name) or collection.unusable_of(name)}

    def section_of(name: str) -> dict[str, Any]:
        begin(name)
        return _section(name, find_experiment(name, entries), collection)

    return (
        _templates()
        .get_template("page.html")
        .render(
            collection=collection,
            entries=entries,
            chapters=chapters({name: entry for name, entry in entries.items() if name in begun}),
            lacking=[name for name in entries if name not in begun],
            made=Environment.model_validate(describe_environment()),
            machines=sorted(
                {f"{one.environment.machine} with {one.environment.cores} cores" for one in counted}
            ),
            counted=counted,
            smoke=smoke,
            first=first,
            facts=_facts(collection, counted, len(first)),
            targets=distinct_targets(counted),
            section_of=section_of,
        )
    )


def _facts(collection: Collection, counted: Sequence[Result], first: int) -> list[str]:
    """Facts below the headline."""
    counts = {
        f"{reached_in_words(counted)} with {{}} further results: other seeds, machines, data": len(counted)
        - first,
        "{} smoke runs, not judged": len(collection.results) - len(collection.counted),
        "{} folders without a usable result": len(collection.unusable),
    }
    facts = [text.format(count) for text, count in counts.items() if count]
    if counted:
        facts.append("a target that several experiments share for the same run counts once")
    return facts


def _section(name: str, figure: Experiment, collection: Collection) -> dict[str, Any]:
    """Values for the template of an experiment."""
    results, unusable = collection.of(name), collection.unusable_of(name)
    counted = [result for result in results if not result.smoke]
    places = paired([result.configuration for result in counted])
    pairs = [(counted[real], counted[twin]) for real, twin in places]
    beside = {result.folder for pair in pairs for result in pair}
    on = {str(result.configuration.get(ON)) for result in counted}
    without = ""
    if not counted and not unusable:
        without = "No results yet."
        if results:
            without = "There is only a smoke run, which is too small to be judged."
    return {
        "paper": published().get(name),
        "description": _description(figure),
        "without": without,
        "unusable": unusable,
        "pairs": [_comparison(figure, *pair) for pair in pairs],
        "not_compared": not pairs and {TESTBED, TWIN} <= on,
        "blocks": [
            {**_block(figure, result), "opened": place == 0, "pictured": result.folder not in beside}
            for place, result in enumerate(results)
        ],
    }


def _description(figure: Experiment) -> list[list[tuple[str, bool]]]:
    """Description of the measurement: paragraphs of (text, whether it is code).

    It is taken from the docstrings of the modules of the experiment's class and its base classes.
    """
    classes = [one for one in type(figure).__mro__ if issubclass(one, Experiment) and one is not Experiment]
    modules = dict.fromkeys(inspect.getmodule(one) for one in classes)
    text = "\n\n".join(filter(None, (inspect.getdoc(module) for module in modules if module)))
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
    return [
        [(part.strip("`"), part.startswith("`")) for part in re.split(r"(`+[^`]+`+)", paragraph)]
        for paragraph in paragraphs
        if paragraph
    ]


def _comparison(figure: Experiment, testbed: Result, twin: Result) -> dict[str, Any]:
    tables = _table_of(figure, testbed), _table_of(figure, twin)
    found = compare(tables[0], tables[1]) if tables[0] is not None and tables[1] is not None else None
    return {"testbed": testbed, "twin": twin, "found": found}


def _block(figure: Experiment, result: Result) -> dict[str, Any]:
    rows, problem, path = None, "", result.folder / "rows.csv"
    if path.is_file():
        try:
            rows = embed_rows(path)
        except CorruptStore as error:
            problem = str(error)
    return {"result": result, "table": _table_of(figure, result), "rows": rows, "rows_problem": problem}


def _table_of(figure: Experiment, result: Result) -> Table | None:
    """The table that the command line prints; None if this version cannot read the summary."""
    try:
        table = table_of(figure, result.metrics)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        return None  # the summary may come from any version and have any shape
    return table if table[1] else None


def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("nearsight.experiments.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(command=command, numeric=_numeric)
    found.filters.update(
        anchor=_anchor,
        base64=lambda data: base64.b64encode(data).decode(),
        commit=_commit,
        in_words=in_words,
        measured=_measured,
        moment=_moment,
        reached=reached_in_words,
    )
    return found


def _anchor(name: str) -> str:
    """Anchor of the experiment's section."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _commit(commit: str) -> str:
    if not commit:
        return "unknown: not run from a repository"
    return f"{commit.removesuffix('+')}, with uncommitted changes" if commit.endswith("+") else commit


def _measured(value: float) -> str:
    """Format a number with four digits and separators between thousands."""
    if not math.isfinite(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _moment(stored: str) -> str:
    """Format a stored time, as "2026-11-21 06:44 UTC"."""
    try:
        found = datetime.fromisoformat(stored)
    except ValueError:
        return stored
    return f"{found:%Y-%m-%d %H:%M} {found.tzname() or ''}".strip()


def _numeric(column: int, rows: Sequence[Sequence[object]]) -> bool:
    """Whether a column holds numbers, or short texts that begin with one, such as "12.3 ± 0.4"."""
    cells = [text for row in rows if (text := str(row[column]))]
    return bool(cells) and all(number(cell) is not None and len(cell) <= _LONGEST_NUMBER for cell in cells)
