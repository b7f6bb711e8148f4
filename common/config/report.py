"""Settings for people: the settings in force with their origins, and a settings file to start from."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping

from nearsight.common.config.base import DaemonSettings, Loaded
from nearsight.common.config.schema import setting_keys

_COMMENT_WIDTH = 100


def settings_in_force(loaded: Loaded[DaemonSettings]) -> list[tuple[str, object, str]]:
    """Dotted key, value in JSON form, and origin of every setting, in order of declaration."""
    values = loaded.settings.model_dump(mode="json")
    return [(key, _value(values, key), origin) for key, origin in loaded.origins.items()]


def _value(values: Mapping[str, object], key: str) -> object:
    value: object = values
    for part in key.split("."):
        # A group that is None has no members.
        value = value.get(part) if isinstance(value, Mapping) else None
    # JSON has no infinity; TOML and the settings accept this text.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def settings_file(sections: Mapping[str, type[DaemonSettings]]) -> str:
    """A ``nearsight.toml`` with every setting of every section, set to its default and commented out."""
    lines = [
        "# Settings of the nearsight daemons. Each line shows a default; remove the # to change it.",
        "# The environment (NEARSIGHT_CLOUD__SERVER__LISTEN=...) and flags win over this file.",
        "# Relative paths start from the folder in which a daemon is started.",
    ]
    for section, settings_class in sections.items():
        lines += ["", *_section_lines(section, settings_class)]
    return "\n".join(lines) + "\n"


def short_settings_file(sections: Mapping[str, type[DaemonSettings]]) -> str:
    """A ``nearsight.toml`` with the settings that users change first; the daemons start with it unchanged."""
    lines = [
        "# Settings that users change first. `nearsight config init` writes all.",
        "# Relative paths start from the folder in which a daemon is started.",
    ]
    for section, settings_class in sections.items():
        table = ""
        for key, (value, comment) in settings_class.changed_first.items():
            group, _, name = f"{section}.{key}".rpartition(".")
            if group != table:
                lines += [*([] if table else [""]), f"[{group}]"]
                table = group
            lines += [f"# {comment}", f"{name} = {toml_value(value)}"]
    return "\n".join(lines) + "\n"


def _section_lines(section: str, settings_class: type[DaemonSettings]) -> Iterator[str]:
    descriptions = setting_keys(settings_class)
    values = settings_class().model_dump(mode="json")
    yield f"[{section}]"
    # TOML requires the keys of a table before its sub-tables.
    table = ""
    groups = list(dict.fromkeys(["", *(key.rpartition(".")[0] for key in descriptions)]))
    for key in sorted(descriptions, key=lambda key: groups.index(key.rpartition(".")[0])):
        group, _, name = key.rpartition(".")
        if group != table:
            table = group
            yield from ("", f"[{section}.{group}]")
        yield from textwrap.wrap(
            descriptions[key], _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        yield f"# {name} = {toml_value(_value(values, key))}".rstrip()


def toml_value(value: object) -> str:
    """A JSON-like value in TOML notation; empty for ``None``, which TOML does not have."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Mapping():
            members = (f"{json.dumps(key)} = {toml_value(member)}" for key, member in value.items())
            return "{" + ", ".join(members) + "}"
        case list() | tuple():
            return "[" + ", ".join(toml_value(member) for member in value) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
