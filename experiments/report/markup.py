"""HTML from Python: text is escaped wherever it comes from; only what was built here counts as markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"img", "input", "meta"})


class Markup(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: str | int | bool) -> Markup:
    """One element.

    Parameters
    ----------
    name : str
        Of the element.
    children : object
        `Markup` as it is, anything else as escaped text.
    attributes : str, int or bool
        ``class_`` and ``for_`` lose their underscore; True stands alone, False and "" are left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    opened = f"<{name}{written}>"
    return Markup(opened if name in _VOID else f"{opened}{together(children)}</{name}>")


def together(parts: Iterable[object]) -> Markup:
    """Elements and texts in sequence."""
    return Markup("".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def _attribute(key: str, value: str | int | bool) -> str:
    if value is False or value == "":
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
