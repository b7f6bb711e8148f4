"""Reading ``nearsight.toml``: one table per daemon, and the line of every key for error messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from nearsight.common.config.schema import nearest
from nearsight.common.errors import ConfigurationError

FILE_NAME = "nearsight.toml"

Section = Literal["cloud", "edge", "device", "gateway"]
SECTIONS: tuple[str, ...] = get_args(Section)
"""The daemons, each with its table in the file."""

_TABLE = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One parsed configuration file."""

    path: Path
    """As the user gave it, or relative to the working directory."""
    tables: Mapping[str, Mapping[str, object]]
    """The parsed document: daemon → its table."""
    lines: Mapping[str, int]
    """Full dotted key, such as ``cloud.server.listen`` → line number from 1."""

    def origin(self, key: str) -> str:
        """``nearsight.toml:7`` for a full key, or for the innermost table around it."""
        while key not in self.lines and "." in key:
            key = key.rpartition(".")[0]
        line = self.lines.get(key)
        return f"{self.path}:{line}" if line else str(self.path)


def find_config(config: Path | None, config_dir: Path) -> Path | None:
    """The file to read: the given one, ``./nearsight.toml``, or the file in the user's configuration folder.

    Raises
    ------
    ConfigurationError
        If the given file does not exist.
    """
    if config is not None:
        if not config.exists() or config.is_fifo():  # commands read it several times
            raise ConfigurationError(
                f"configuration file {config} does not exist",
                advice="create one with `nearsight config init`",
            )
        return config
    candidates = [Path(FILE_NAME), config_dir / FILE_NAME]
    return next((path for path in candidates if path.is_file()), None)


def read_config(path: Path) -> ConfigFile:
    """Parse a file and refuse unknown tables.

    Raises
    ------
    ConfigurationError
        If it is not readable, not TOML, or has a table or key outside of `SECTIONS`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors write a byte order mark
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: it is not UTF-8 text") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    file = ConfigFile(path, document, _line_numbers(text))
    for name, table in document.items():
        if name not in SECTIONS:
            raise ConfigurationError(
                f"{file.origin(name)}: unknown table [{name}]", advice=nearest(name, list(SECTIONS))
            )
        if not isinstance(table, dict):
            raise ConfigurationError(
                f"{file.origin(name)}: {name} must be a table", advice=f"write [{name}] on a line of its own"
            )
    return file


def _line_numbers(text: str) -> dict[str, int]:
    """Line number of each table and key.

    The standard library's parser does not report them. Text in a multi-line value may be recorded as a key as
    well; this has no effect, because only existing keys are looked up.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = _plain(header[1])
            lines.setdefault(table, number)
        elif entry := _KEY.match(line):
            key = _plain(entry[1])
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
