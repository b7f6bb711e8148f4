"""Errors in the format for HTTP and WebSocket clients; the only module that converts them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType

from starlette.responses import Response

from nearsight.common.errors import (
    DeadlineExceeded,
    ImageTooLarge,
    NearsightError,
    Overloaded,
    StatusCode,
    Unavailable,
)

_HTTP_STATUS = MappingProxyType(
    {
        StatusCode.INVALID_ARGUMENT: 400,
        StatusCode.UNAUTHENTICATED: 401,
        StatusCode.PERMISSION_DENIED: 403,
        StatusCode.NOT_FOUND: 404,
        StatusCode.OVERLOADED: 503,
        StatusCode.UNAVAILABLE: 503,
        StatusCode.DEADLINE_EXCEEDED: 504,
        StatusCode.INTERNAL: 500,
    }
)
_RETRY_AFTER_S = 1.0


class TooFast(Overloaded):
    """A client exceeds its rate."""

    def __init__(self, who: str, rate_per_s: float, retry_after_s: float) -> None:
        super().__init__(
            f"{who} may send {rate_per_s:g} images per second",
            advice=f"send the next one in {max(retry_after_s, 0.1):.1f} s",
        )
        self.retry_after_s = retry_after_s


class TooSlow(DeadlineExceeded):
    """A client did not send its request in time."""


def http_status(error: NearsightError) -> int:
    """HTTP status of an error."""
    return {ImageTooLarge: 413, TooFast: 429, TooSlow: 408}.get(type(error), _HTTP_STATUS[error.code])


def error_json(error: NearsightError) -> dict[str, str]:
    """Content of an error message to a client."""
    return {"code": error.code.name, "message": error.message, "advice": error.advice}


def json_response(
    value: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON response in ASCII, so that foreign labels and names cannot send control codes to a terminal."""
    return Response(json.dumps(value), status, headers, "application/json")


def error_response(error: NearsightError) -> Response:
    """The response for an error."""
    status = http_status(error)
    headers = {}
    if isinstance(error, Overloaded | Unavailable):
        after_s = error.retry_after_s if isinstance(error, TooFast) else _RETRY_AFTER_S
        headers["Retry-After"] = str(max(1, math.ceil(after_s)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooSlow):
        headers["Connection"] = "close"  # the rest of the request may still arrive
    return json_response({"error": error_json(error)}, status, headers)
