"""Text that came from others, made safe to show: labels, names and messages may hold anything."""

from __future__ import annotations

import re

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line break, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    "\u2028\u2029"  # other line breaks
    "\ud800-\udfff]"  # no characters: they cannot be encoded
)
_BREAKING = re.compile("[\t\n]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text with each character that steers a terminal as an escape such as ``\x1b``.

    Parameters
    ----------
    text : str
        Anything.
    lines : bool
        Leave tabs and line breaks; for text of our own that has several lines.
    """
    text = _STEERING.sub(_escaped, text)
    return text if lines else _BREAKING.sub(_escaped, text)


def printable_json(text: str) -> str:
    """The same for a JSON document, which stays the same value."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
