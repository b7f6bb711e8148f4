"""Finds the experiments in `studies`, so that a new experiment needs only its own file.

An experiment is a class that states ``name`` and ``source`` in its body; the first line of its docstring
describes it. These are read from the source text, so that a listing does not import the studies.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.framework.experiment import Experiment

_STUDIES = "nearsight.experiments.studies"
_SOURCE = re.compile(
    r"(?:beyond (?:the )?)?(?P<paper>.+?)(?:'s)?,? (?:chapter )?(?P<section>\d+(?:\.\d+)*)(?:\D.*)?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment that can be run."""

    module: str
    shows: str
    """One-line description of what it shows."""
    source: str
    """Its place in the papers: "PAPER, 3.2", "beyond the PAPER's 3.2" or "beyond PAPER, 3.2"."""
    figure: str = "Figure"
    """Name of its class in the module, a subclass of `Experiment`."""

    @property
    def place(self) -> tuple[str, tuple[float, ...]]:
        """Sort key: paper and section, those "beyond" a section after it; else the whole source."""
        found = _SOURCE.fullmatch(self.source)
        if found is None:
            return self.source, ()
        beyond = (inf,) if self.source.startswith("beyond") else ()
        return found["paper"], (*(int(part) for part in found["section"].split(".")), *beyond)


@cache
def experiments(studies: Path = Path(__file__).parent.parent / "studies") -> Mapping[str, Entry]:
    """Return all experiments by name, ordered by paper and section.

    Raises
    ------
    InvalidArgument
        If two have the same name.
    """
    found: dict[str, Entry] = {}
    for path in studies.rglob("*.py"):
        module = ".".join((_STUDIES, *path.relative_to(studies).with_suffix("").parts))
        for name, entry in _entries_in(path, module):
            if name in found:
                raise InvalidArgument(f"{found[name].module} and {entry.module} have the same name {name!r}")
            found[name] = entry
    return MappingProxyType(ordered(found))


def ordered(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Sort entries by paper, section and name."""
    return dict(sorted(entries.items(), key=lambda item: (item[1].place, natural(item[0]))))


def find_experiment(name: str, entries: Mapping[str, Entry] | None = None) -> Experiment:
    """Return the experiment of this name; ``entries``: all of `experiments` by default.

    Raises
    ------
    NotFound
        If there is no such experiment.
    """
    entries = experiments() if entries is None else entries
    entry = entries.get(name)
    if entry is None:
        close = get_close_matches(name, list(entries), n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise NotFound(
            f"there is no experiment {name!r}", advice=f"{meant}`nearsight experiment list` lists all"
        )
    figure = getattr(importlib.import_module(entry.module), entry.figure)()
    if not isinstance(figure, Experiment):
        raise NotFound(f"{entry.module}.{entry.figure} is not an experiment")
    return figure


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that places fig6.4 before fig6.10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def _entries_in(path: Path, module: str) -> Iterator[tuple[str, Entry]]:
    text = path.read_text(encoding="utf-8")
    if "source:" not in text:  # Parsing every file would make the listing slow.
        return
    for node in ast.parse(text, str(path)).body:
        if isinstance(node, ast.ClassDef):
            stated = dict(_strings(node))
            if {"name", "source"} <= stated.keys():
                shows = (ast.get_docstring(node) or "").partition("\n")[0]
                yield stated["name"], Entry(module, shows, stated["source"], node.name)


def _strings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Class attributes that are set to a string literal."""
    for line in node.body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value))):
                yield name, value
