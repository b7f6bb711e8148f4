"""The keys of a settings class; used to suggest the correct key for a mistyped one.

A key is dotted: ``server.listen`` is field ``listen`` of the nested model in field ``server``. Every other
field is a leaf, also a list or a mapping; leaves are set as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter

from nearsight.common.errors import ConfigurationError


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One value and its origin."""

    value: object
    """The value as written; not validated yet."""
    origin: str
    """Text for the user: ``nearsight.toml:7``, ``NEARSIGHT_EDGE__LOG_LEVEL``, ``command line``."""
    is_text: bool = False
    """Whether the source has text only: lists and mappings are JSON."""


def setting_keys(settings_class: type[Any], prefix: str = "") -> dict[str, str]:
    """Every key of a class with its description, in order of declaration.

    Nested pydantic models and dataclasses are groups; all other fields are leaves.
    """
    keys: dict[str, str] = {}
    for name, annotation, description in _members(settings_class):
        group = _group(annotation)
        if group is None:
            keys[prefix + name] = description
        else:
            keys.update(setting_keys(group, f"{prefix}{name}."))
    return keys


def _members(settings_class: type[Any]) -> Iterator[tuple[str, object, str]]:
    if issubclass(settings_class, BaseModel):
        for name, field in settings_class.model_fields.items():
            yield name, field.annotation, field.description or ""
        return
    annotations = get_type_hints(settings_class)
    described = TypeAdapter(settings_class).json_schema()["properties"]
    for member in dataclasses.fields(settings_class):
        yield member.name, annotations[member.name], described[member.name].get("description", "")


def _group(annotation: object) -> type[Any] | None:
    """The class in ``Group`` or ``Group | None``."""
    union = get_origin(annotation) in (Union, UnionType)
    for candidate in get_args(annotation) if union else (annotation,):
        if isinstance(candidate, type) and (
            issubclass(candidate, BaseModel) or dataclasses.is_dataclass(candidate)
        ):
            return candidate
    return None


def flatten(
    keys: Collection[str], table: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    """Split nested tables into pairs of key and value; leaves and unknown keys are not split."""
    for name, value in table.items():
        key = prefix + name
        is_group = any(known.startswith(f"{key}.") for known in keys)
        if isinstance(value, Mapping) and key not in keys and (value or is_group):
            yield from flatten(keys, value, f"{key}.")
        else:
            yield key, value


def nest(values: Mapping[str, object]) -> dict[str, object]:
    """Turn dotted keys into nested tables."""
    root: dict[str, Any] = {}
    for key, value in values.items():
        *groups, name = key.split(".")
        table = root
        for group in groups:
            table = table.setdefault(group, {})
        table[name] = value
    return root


def check_key(keys: Collection[str], key: str, origin: str) -> None:
    """Refuse an unknown key.

    Raises
    ------
    ConfigurationError
        With the origin and the nearest valid key.
    """
    if key in keys:
        return
    members = [known for known in keys if known.startswith(f"{key}.")]
    if members:
        raise ConfigurationError(
            f"{origin}: {key} is a group of settings", advice=f"set its members, such as {members[0]}"
        )
    raise ConfigurationError(f"{origin}: unknown setting {key!r}", advice=nearest(key, list(keys)))


def nearest(name: str, known: list[str]) -> str:
    """Advice for an unknown name: the most similar known one."""
    # First a correct name or group inside the wrong name: ``server.listen`` for ``edge.server.listen``.
    groups = {key.rpartition(".")[0]: key for key in reversed(known) if "." in key}
    within = [key for key in (*known, *groups) if name.endswith(f".{key}")]
    if within:
        longest = max(within, key=len)
        return f"did you mean {groups.get(longest, longest)!r}?"
    parts = name.count(".") + 1
    longest_first = sorted(known, key=lambda key: (-len(key), key))
    full = {".".join(key.split(".")[-parts:]): key for key in longest_first} | {key: key for key in known}
    close = get_close_matches(name, list(full), n=1, cutoff=0.5)
    return f"did you mean {full[close[0]]!r}?" if close else f"known are: {', '.join(known)}"
