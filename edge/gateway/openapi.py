"""The description of the HTTP interface, OpenAPI 3.1."""

from __future__ import annotations

from nearsight import __version__
from nearsight.edge.gateway.settings import LimitSettings


def openapi_document(limits: LimitSettings) -> dict[str, object]:
    """What ``GET /openapi.json`` answers."""
    del limits
    return {
        "openapi": "3.1.0",
        "info": {"title": "nearsight gateway", "version": __version__},
        "paths": {},
    }
