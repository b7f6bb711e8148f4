"""The files of the visitor's page, from the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"

_TYPES = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".webmanifest": "application/manifest+json",
    }
)
_HEADERS = MappingProxyType(
    {
        "Cache-Control": "no-cache",  # revalidate each time, so that updates take effect at once
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' blob: data:; media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    }
)


class PageFiles:
    """Serves the files of `FOLDER` from memory, except unknown types. Clients' paths never reach the disk."""

    def __init__(self) -> None:
        self._files: Mapping[str, tuple[bytes, str, str]] = {
            f"/{path.name}": (data, _TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:20]}"')
            for path in sorted(FOLDER.glob("*"))
            if path.suffix in _TYPES
            for data in (path.read_bytes(),)
        }

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return (*self._files, "/")

    async def serve(self, request: Request) -> Response:
        """Answer a request for one of `paths`."""
        path = request.url.path
        data, kind, etag = self._files["/index.html" if path == "/" else path]
        headers = {**_HEADERS, "ETag": etag}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(data, headers={**headers, "Content-Type": kind})
