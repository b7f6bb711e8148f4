"""The order of the report: papers, chapters, and the experiments in the order of their sections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.collecting import natural

_SOURCE = re.compile(
    r"(?:beyond the )?(?P<paper>.+?)(?:'s)?,? (?:chapter )?(?P<section>\d+(?:\.\d+)*)(?:\D.*)?"
)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Experiments that stand together.

    Attributes
    ----------
    title : str
        Such as "Cachier dissertation, chapter 3".
    experiments : tuple of str
        In the order of their sections.
    """

    title: str
    experiments: tuple[str, ...]


def chapters(entries: Mapping[str, Entry]) -> tuple[Chapter, ...]:
    """Papers in the order in which they are first named; what goes beyond a section stands after it."""
    papers = list(dict.fromkeys(_place(entry)[0] for entry in entries.values()))
    ordered = sorted(entries, key=lambda name: _key(name, entries[name], papers))
    found: dict[str, list[str]] = {}
    for name in ordered:
        paper, section = _place(entries[name])
        found.setdefault(f"{paper}, chapter {section[0]}" if section else paper, []).append(name)
    return tuple(Chapter(title, tuple(names)) for title, names in found.items())


def _key(name: str, entry: Entry, papers: list[str]) -> tuple[object, ...]:
    paper, section = _place(entry)
    beyond = (inf,) if entry.source.startswith("beyond") else ()
    return papers.index(paper), (*section, *beyond), natural(name)


def _place(entry: Entry) -> tuple[str, tuple[int, ...]]:
    """Paper and section; a source without a section is its own."""
    found = _SOURCE.fullmatch(entry.source)
    if found is None:
        return entry.source, ()
    return found["paper"], tuple(int(part) for part in found["section"].split("."))
