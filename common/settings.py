"""Base of all groups of settings: frozen, validated, without unknown names.

A group that is built in Python raises a `ConfigurationError` of one line for an invalid value.
``model_validate``, which validates files and messages, raises pydantic's own error instead: its caller knows
the origin of each value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from nearsight.common.errors import ConfigurationError


class SettingError(NamedTuple):
    """The first error of a validation."""

    path: tuple[str, ...]
    """Names that lead to the value; empty if the error concerns the whole group."""
    text: str
    """The error in one line."""

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(self.path), self.text)))


def first_error(error: ValidationError) -> SettingError:
    """The first error of a validation as one line for the user, instead of pydantic's block of text."""
    errors = error.errors(include_url=False)
    first = errors[0]
    path = tuple(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    shown = f" (given: {first['input']!r:.100})" if path and not isinstance(first["input"], Mapping) else ""
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return SettingError(path, f"{message[:1].lower()}{message[1:]}{shown}{more}")


class SettingsGroup(BaseModel):
    """Base of all groups; the text below each field is its description in ``nearsight config init``.

    Raises
    ------
    ConfigurationError
        If a value is invalid or a name is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    if not TYPE_CHECKING:  # type checkers keep pydantic's types of the arguments

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _configuration_error(type(self), error) from error

        # With this mark, pydantic builds nested groups by itself and keeps their path for its errors.
        __init__.__pydantic_base_init__ = True


def _configuration_error(group: type[BaseModel], error: ValidationError) -> ConfigurationError:
    path, text = first_error(error)
    unknown = bool(path) and path[0] not in group.model_fields
    advice = f"it has {', '.join(group.model_fields)}" if unknown else f"see help({group.__name__})"
    return ConfigurationError(f"{'.'.join((group.__name__, *path))}: {text}", advice=advice)
