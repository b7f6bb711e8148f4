"""Settings of the cloud daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from nearsight.common.catalogue.training import MAX_CATALOGUES
from nearsight.common.config.base import RpcDaemonSettings, UserPath
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.server import ServerSettings
from nearsight.common.settings import SettingsGroup


def _cores() -> int:
    return os.cpu_count() or 1


class IntakeSettings(SettingsGroup):
    """Training of objects that arrive over the network."""

    threads: int = Field(default=max(1, _cores() // 2), ge=1, le=256)
    """Threads that train objects; the other cores remain for recognition."""
    max_pending: int = Field(default=16, ge=1, le=10_000)
    """AddObjects calls accepted at a time; further calls are answered OVERLOADED."""


class CloudSettings(RpcDaemonSettings):
    """Settings of the cloud daemon."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "database": ("cloud.db", "File with all catalogues; `nearsight cloud ingest` fills it."),
            "create": (True, "Create an empty database if the file does not exist."),
            "server.listen": (DEFAULT_ENDPOINTS["cloud"], "Endpoint for edges. Other machines need keys."),
        }
    )
    server: ServerSettings = ServerSettings(listen=DEFAULT_ENDPOINTS["cloud"], workers=_cores())
    """The server for edges and devices; one worker per core."""
    database: UserPath = Path("cloud.db")
    """SQLite file with all catalogues."""
    create: bool = False
    """Create an empty database if the file does not exist."""
    max_catalogues: int = Field(default=MAX_CATALOGUES, ge=1, le=10_000)
    """Maximum number of catalogues; each has its own thread and index."""
    poll_interval_s: float = Field(default=1.0, gt=0, le=3600)
    """Interval of polling the database and the folder of networks for changes by other processes, such as an
    ingestion [s]."""
    recognition: RecognitionSettings = RecognitionSettings()
    """Recognition: from an image to an answer."""
    intake: IntakeSettings = IntakeSettings()
    """Training of objects that arrive over the network."""
    models: ModelSettings = ModelSettings(memory_mb=4096)
    """Neural networks."""
