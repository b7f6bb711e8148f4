"""The one place where errors become status codes on the server, and status codes errors at the client.

Errors of the tree in `nearsight.common.errors` were written for the peer to read and travel as they are. All
others are bugs or troubles of this machine: their details stay in its log, found there by the trace id.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.errors import (
    DeadlineExceeded,
    InternalError,
    NearsightError,
    SetupError,
    StatusCode,
    error_from_status,
)

LONGEST_TEXT = 2000
"""Characters of an error text that travel; a text may quote what the peer sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: a status code and, unless it is OK, what to tell the peer."""

    code: StatusCode
    error: str = ""
    advice: str = ""


OK = Outcome(StatusCode.OK)


def is_internal(error: BaseException) -> bool:
    """Whether the error is a bug or a trouble of this machine, which the peer is not told about."""
    if isinstance(error, SetupError):
        return True
    return not isinstance(error, NearsightError | TimeoutError)


def outcome_of(error: BaseException, trace_id: str) -> Outcome:
    """The status that an error becomes."""
    if is_internal(error):
        return Outcome(
            StatusCode.INTERNAL,
            "the request failed inside the server",
            f"its log has the details under trace_id {trace_id}" if trace_id else "its log has the details",
        )
    if isinstance(error, NearsightError):
        return Outcome(error.code, error.message[:LONGEST_TEXT], error.advice[:LONGEST_TEXT])
    return Outcome(DeadlineExceeded.code, "the server's own wait timed out")


def error_of(code: int, message: str, advice: str) -> NearsightError:
    """The error that a status other than OK stands for; codes of a newer peer count as INTERNAL."""
    try:
        known = StatusCode(code)
    except ValueError:
        return InternalError(f"the server answered with unknown status {code}: {message}", advice=advice)
    return error_from_status(known, message, advice)
