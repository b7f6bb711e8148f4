"""Groups of settings, as applications and daemons build them: frozen, checked, without unknown names.

Whoever builds a group in Python gets a `ConfigurationError` of one line for a value that cannot work. Where a
file or a message is validated (``model_validate``), pydantic's own error goes to whoever reads that: it knows
where each value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from nearsight.common.errors import ConfigurationError


class Complaint(NamedTuple):
    """The first thing that a validation found wrong."""

    path: tuple[str, ...]
    """Names that lead to the value; empty if it is the whole."""
    text: str
    """What is wrong with it, in one line."""


def first_complaint(error: ValidationError) -> Complaint:
    """What to tell a person, instead of pydantic's block of text."""
    complaints = error.errors(include_url=False)
    first = complaints[0]
    path = tuple(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    shown = f" (given: {first['input']!r})" if path and not isinstance(first["input"], Mapping) else ""
    more = f", and {len(complaints) - 1} more" if len(complaints) > 1 else ""
    return Complaint(path, f"{message[:1].lower()}{message[1:]}{shown}{more}")


class SettingsGroup(BaseModel):
    """Base of all groups; the text below each field is its description in ``nearsight config show``.

    Raises
    ------
    ConfigurationError
        If a value cannot work, or a name is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    if not TYPE_CHECKING:  # pydantic's types of the arguments stay

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _configuration_error(type(self), error) from error

        # Groups within what is validated are then built as those of pydantic, and it keeps their place.
        __init__.__pydantic_base_init__ = True


def _configuration_error(group: type[BaseModel], error: ValidationError) -> ConfigurationError:
    path, text = first_complaint(error)
    unknown = bool(path) and path[0] not in group.model_fields
    advice = f"it has {', '.join(group.model_fields)}" if unknown else f"see help({group.__name__})"
    return ConfigurationError(f"{'.'.join((group.__name__, *path))}: {text}", advice=advice)
