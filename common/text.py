"""Text for people: percentages, and escapes of control characters in text from others, such as labels."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and line break, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # writing direction
    "\u2028\u2029"  # further line breaks
    "\ud800-\udfff]"  # surrogates: they cannot be encoded
)
_BREAKS = re.compile("[\t\n]")


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage with this number of decimals, such as "63 %"."""
    return f"{100 * share:.{digits}f} %"


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text with each character that controls a terminal replaced by an escape such as ``\x1b``.

    Parameters
    ----------
    text : str
        Any text.
    lines : bool
        Keep tabs and line breaks; for own text that has several lines.
    """
    text = _CONTROL.sub(_escaped, text)
    return text if lines else _BREAKS.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Escape control characters in a JSON document; its value stays the same."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
