"""The options of a run in words, and as the command that repeats it; both from its ``configuration``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ON, COSTS, MARK = "on", "costs", "costs_mark"
TESTBED, TWIN, PAPER = "testbed", "twin", "paper"
_IN_WORDS = {
    (ON, TESTBED): "testbed",
    (ON, TWIN): "twin",
    (COSTS, "measured"): "costs measured",
    (COSTS, TESTBED): "the testbed's machines",
    (COSTS, PAPER): "the paper's costs",
}
_FILES = {"visits": "visitors", "data": "data set"}
"""Options whose configuration is "name:fingerprint"."""


def in_words(configuration: Mapping[str, Any]) -> str:
    """Describe the options that distinguish a run, such as "twin, the paper's costs, seed 2"."""
    return ", ".join(filter(None, (_option(key, value) for key, value in _ordered(configuration))))


def command(
    experiment: str, configuration: Mapping[str, Any], folder: Path | None = None, *, verb: str = "run"
) -> str:
    """Return the command that repeats a run; options with files have the file's name without its folder."""
    options: list[str] = []
    for key, value in _ordered(configuration) if verb == "run" else ():
        options += _typed(key, value)
    if folder is not None:
        options += ["--out", str(folder)]
    return shlex.join(["nearsight", "experiment", verb, experiment, *options])


def _ordered(configuration: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Options in the order ``on``, ``costs``, ``seed``, then all others; the mark of costs is left out."""
    first = (ON, COSTS, "seed")
    keys = dict.fromkeys([*(key for key in first if key in configuration), *configuration])
    return [(key, configuration[key]) for key in keys if key != MARK]


def _option(key: str, value: Any) -> str:
    words = _IN_WORDS.get((key, str(value)))
    if words is not None:
        return words
    if key == "smoke":
        return "smoke run" if value else ""
    if _unset(value):
        return ""
    if key in _FILES:
        return f"{_FILES[key]} {_file_name(value)}"
    return f"{key} {value}"


def _typed(key: str, value: Any) -> list[str]:
    if _unset(value) or (key, value) == ("seed", 1):
        return []
    if value is True:
        return [f"--{key}"]
    return [f"--{key}", _file_name(value) if key in _FILES else str(value)]


def _unset(value: object) -> bool:
    return value is None or value is False or value == ""  # a seed of 0 counts as set


def _file_name(fingerprinted: object) -> str:
    return str(fingerprinted).rpartition(":")[0] or str(fingerprinted)
