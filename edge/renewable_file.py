"""Database files that an edge may replace by an empty file, because they fill again (decision 035)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nearsight.common.database.database_file import DatabaseFile
from nearsight.common.database.files import DatabaseFormat
from nearsight.common.database.places import set_aside
from nearsight.common.errors import CorruptStore, ForeignStore
from nearsight.common.logging import get_logger

F = TypeVar("F", bound=DatabaseFile)


def renewable_format(
    application_id: int, versions: tuple[str, ...], example: str, *, named_by_user: bool = True
) -> DatabaseFormat:
    """Format of such a file: it is for one process, and a power cut may lose the last commits."""
    return DatabaseFormat(
        application_id=application_id,
        versions=versions,
        example=example,
        begin_advice="check the path",
        recover_advice="it is set aside and replaced by an empty file",
        busy_timeout_s=2.0,
        exclusive=True,
        named_by_user=named_by_user,
    )


def open_or_replace(path: Path, opened: Callable[[Path], F]) -> tuple[F, Path | None]:
    """Open a file; a damaged file is set aside and replaced by an empty one.

    Returns
    -------
    file : DatabaseFile
        Result of ``opened``.
    damaged : Path or None
        New path of the damaged file; None if there was none.

    Raises
    ------
    NearsightError
        As in ``opened``, except for a damaged file.
    """
    try:
        return opened(path), None
    except ForeignStore:
        raise
    except CorruptStore as error:
        damaged = set_aside(path, "damaged")
        get_logger("state").error("a damaged file was replaced", error=str(error), damaged=str(damaged))
    return opened(path), damaged
