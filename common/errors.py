"""All errors that nearsight raises, in one tree, and the status code of each in a response.

The tree shows which side must act. Code that handles errors tests the class and never the text::

    NearsightError
    ├── CallerError                  the caller must change the call: a retry cannot help
    │   ├── InvalidArgument          INVALID_ARGUMENT
    │   │   ├── InvalidImage           not an image, empty or truncated
    │   │   ├── ImageTooLarge          exceeds the limit of bytes or pixels
    │   │   └── InvalidMessage         not a valid message of this protocol
    │   ├── NotFound                 NOT_FOUND: no such catalogue, object or method
    │   └── Unauthenticated          UNAUTHENTICATED: wrong, missing or unknown key
    │       └── PermissionDenied       PERMISSION_DENIED: the key has no right to do this
    ├── PeerError                    expected failure of a peer: may be temporary, another tier may answer
    │   ├── DeadlineExceeded         DEADLINE_EXCEEDED
    │   ├── Overloaded               OVERLOADED: the queue is full, or the request waited too long in it
    │   │   └── DatabaseInUse          another process uses the database
    │   └── Unavailable              UNAVAILABLE: no connection, or it was lost during the request
    │       └── DiskUnavailable        a database cannot be written: the disk is full, read-only or fails
    ├── Cancelled                    UNAVAILABLE: the caller ended the request by cancel() or close()
    ├── InternalError                INTERNAL: a bug of the peer; its log holds the details
    └── SetupError                   this machine or its files must change before a daemon can start
        ├── ConfigurationError         a setting is wrong
        ├── MissingDependency          an optional library is not installed
        ├── AddressInUse               the port is taken
        └── CorruptStore               a database or profile cannot be read; it is never overwritten
            └── ForeignStore             the file is intact, but of another application or a newer version

Errors carry ``advice``, the next step for the user, separately from the message. Commands print both on one
line.
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum
from functools import partial
from types import MappingProxyType


class StatusCode(IntEnum):
    """Outcome of a call, with gRPC's meaning. The numbers are those of ``Status`` in ``rpc.proto``."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    DEADLINE_EXCEEDED = 3
    OVERLOADED = 4
    UNAVAILABLE = 5
    UNAUTHENTICATED = 6
    INTERNAL = 7
    PERMISSION_DENIED = 8


class NearsightError(Exception):
    """Base of all errors of this project.

    Parameters
    ----------
    message : str
        What happened, in one line.
    advice : str
        The next step for the user, in one line; empty if there is none.
    """

    code: StatusCode = StatusCode.INTERNAL
    exit_code: int = 1

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled with their positional arguments only; ``advice`` is a keyword.
        return (partial(type(self), advice=self.advice), (self.message,))


class CallerError(NearsightError):
    """The call itself is wrong; a retry cannot succeed."""

    code = StatusCode.INVALID_ARGUMENT
    exit_code = 2


class InvalidArgument(CallerError):
    """An argument is outside the range that the call accepts."""


class InvalidImage(InvalidArgument):
    """The bytes cannot be decoded as an image."""


class ImageTooLarge(InvalidArgument):
    """The image exceeds the limit of bytes or of declared pixels."""


class InvalidMessage(InvalidArgument):
    """The bytes are not a valid message of this protocol."""


class NotFound(CallerError):
    """There is no catalogue, object, service or method of that name."""

    code = StatusCode.NOT_FOUND


class Unauthenticated(CallerError):
    """The peer does not accept this key, or does not have the expected key itself."""

    code = StatusCode.UNAUTHENTICATED
    exit_code = 3


class PermissionDenied(Unauthenticated):
    """The peer accepts this key, but the key has no right to do this."""

    code = StatusCode.PERMISSION_DENIED


class PeerError(NearsightError):
    """A peer failed in a way that is expected of networks and busy machines."""

    code = StatusCode.UNAVAILABLE
    exit_code = 4


class DeadlineExceeded(PeerError):
    """No response arrived within the time that the caller gave."""

    code = StatusCode.DEADLINE_EXCEEDED


class Overloaded(PeerError):
    """The peer has more requests than it can serve in time."""

    code = StatusCode.OVERLOADED
    tier: str = ""
    """Tier that refused, if known: the called one or a tier behind it. Empty if unknown."""


class DatabaseInUse(Overloaded):
    """Another process uses the database.

    A command on this machine ends with the exit code of a `SetupError`, as for a port in use.
    """

    exit_code = 5


class Unavailable(PeerError):
    """The peer cannot be reached, or its connection was lost during the request."""

    code = StatusCode.UNAVAILABLE
    reached: bool = True
    """False if no connection was made, so the peer did not receive the request."""


class DiskUnavailable(Unavailable):
    """A database cannot be written: its disk is full, read-only or fails.

    A client of the daemon may retry. A command on this machine ends with the exit code of a `SetupError`.
    """

    exit_code = 5


class Cancelled(NearsightError):
    """The caller ended the request: it cancelled it, or closed the client or server that handled it."""

    code = StatusCode.UNAVAILABLE


class InternalError(NearsightError):
    """A bug on the serving side. The message never holds a traceback."""


class SetupError(NearsightError):
    """This machine or its files must change before the command can run."""

    exit_code = 5


class ConfigurationError(SetupError):
    """A setting has a value that cannot work."""


class MissingDependency(SetupError):
    """An optional library is not installed."""


class AddressInUse(SetupError):
    """The address to listen on is taken or does not belong to this machine."""


class CorruptStore(SetupError):
    """A database or profile cannot be read; the file is not changed."""


class ForeignStore(CorruptStore):
    """The file is a database of another application, or one of a newer version."""


_BY_CODE: dict[StatusCode, type[NearsightError]] = {
    error.code: error
    for error in (
        InvalidArgument,
        NotFound,
        DeadlineExceeded,
        Overloaded,
        Unavailable,
        Unauthenticated,
        InternalError,
        PermissionDenied,
    )
}


def error_from_status(code: StatusCode, message: str, advice: str = "") -> NearsightError:
    """The error for a status other than OK, which the client raises to its caller."""
    return _BY_CODE[code](message, advice=advice)


INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = MappingProxyType(
    {
        0: "done",
        1: "a bug, here or on the other side",
        2: "wrong arguments, or no such file, catalogue or object (settings, addresses, keys and tokens: 5)",
        3: "the peer refused the key or the request, or does not have the expected key",
        4: "a peer is unreachable, overloaded, too late or not ready; trying again may help",
        5: "this machine must change first: settings, also those given as options, addresses, keys, tokens, "
        "a missing library, a port or database in use, a damaged file, a full disk",
        6: "every photo was answered, one or more with: unknown (`nearsight recognize`)",
        INTERRUPTED: "interrupted with Ctrl-C",
        BROKEN_PIPE: "the reader of the output closed it",
    }
)
"""Meaning of each exit code of the ``nearsight`` command, for scripts."""

_FREE_SPACE = "free some space, or write to another location, and run the command again"
_GIVE_ACCESS = "give access to it, or name another location"
_ADVICE = MappingProxyType(
    {
        errno.ENOSPC: _FREE_SPACE,
        errno.EDQUOT: _FREE_SPACE,
        errno.EFBIG: "allow larger files: ulimit -f",
        errno.EROFS: "name another location",
        errno.EISDIR: "name a file, not a folder",
        errno.EEXIST: "a file has this name; name another location",
        errno.ENOTDIR: "a part of the path is a file; name another location",
        errno.ENAMETOOLONG: "give a shorter name",
        errno.ELOOP: "a symbolic link leads to itself; name another location",
        errno.EIO: "check the disk",
        errno.EBUSY: "a mounted file cannot be replaced: mount its folder, or name another location",
        errno.EACCES: _GIVE_ACCESS,
        errno.EPERM: _GIVE_ACCESS,
        errno.EMFILE: "allow more: ulimit -n 4096",
        errno.ENFILE: "this machine has too many open files: end some programs",
    }
)


def as_setup_error(error: OSError) -> SetupError | None:
    """An error with advice for a refusal by the operating system; None if the cause may be a bug."""
    if error.errno is None or error.errno not in _ADVICE:
        return None
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return SetupError(": ".join([os.strerror(error.errno), *names]), advice=_ADVICE[error.errno])
