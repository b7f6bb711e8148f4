"""What a catalogue or an object may be called, checked wherever a name comes in from outside."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nearsight.common.errors import InvalidArgument

MAX_OBJECT_ID_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 1_000
MAX_METADATA_CHARACTERS = 16_384

_CATALOGUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_catalogue_name(name: str) -> str:
    """Return ``name`` if it can name a catalogue.

    Raises
    ------
    InvalidArgument
        If it is empty, too long or holds anything but letters, digits, ``.``, ``_`` and ``-``.
    """
    if not _CATALOGUE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name[:80]!r} cannot name a catalogue",
            advice="use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit",
        )
    return name


def check_object(object_id: str, label: str, metadata: Mapping[str, str]) -> None:
    """Check what describes an object before it is trained and stored.

    Raises
    ------
    InvalidArgument
        If the id is empty, too long or not printable, or label or metadata are too long.
    """
    if not object_id or len(object_id) > MAX_OBJECT_ID_CHARACTERS or not object_id.isprintable():
        raise InvalidArgument(
            f"{object_id[:80]!r} cannot be an object's id",
            advice=f"use 1 to {MAX_OBJECT_ID_CHARACTERS} printable characters",
        )
    if len(label) > MAX_LABEL_CHARACTERS:
        raise InvalidArgument(f"the label has {len(label)} characters, more than {MAX_LABEL_CHARACTERS}")
    characters = sum(len(key) + len(value) for key, value in metadata.items())
    if characters > MAX_METADATA_CHARACTERS:
        raise InvalidArgument(
            f"the metadata has {characters} characters, more than {MAX_METADATA_CHARACTERS}"
        )
