"""Database files that an edge can begin anew, as what is in them comes again (decision 035)."""

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


def renewable_format(application_id: int, versions: tuple[str, ...], example: str) -> DatabaseFormat:
    """The format of such a file: for one process, and a power cut may cost the last commits."""
    return DatabaseFormat(
        application_id=application_id,
        versions=versions,
        example=example,
        begin_advice="check the path",
        recover_advice="it is set aside, and a new one begun",
        busy_timeout_s=2.0,
        exclusive=True,
        durable=False,
    )


def open_or_begin_anew(path: Path, opened: Callable[[Path], F]) -> tuple[F, Path | None]:
    """Open a file; one that is damaged is set aside, and a new one begun.

    Returns
    -------
    file : DatabaseFile
        What ``opened`` returned.
    damaged : Path or None
        Where the damaged file is now, if there was one.

    Raises
    ------
    NearsightError
        As ``opened``, except for a damaged file.
    """
    try:
        return opened(path), None
    except ForeignStore:
        raise
    except CorruptStore as error:
        damaged = set_aside(path, "damaged")
        get_logger("state").error("begins anew", error=str(error), damaged=str(damaged))
    return opened(path), damaged
