"""The chapters of the report: experiments of one chapter of a paper stand together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nearsight.experiments.framework.registry import Entry


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
    """Group experiments that are in the order of papers and sections."""
    found: dict[str, list[str]] = {}
    for name, entry in entries.items():
        paper, section = entry.place
        found.setdefault(f"{paper}, chapter {section[0]}" if section else paper, []).append(name)
    return tuple(Chapter(title, tuple(names)) for title, names in found.items())
