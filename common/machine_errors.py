"""What the operating system refuses: a full disk, a missing right. A person can change that; it is no bug."""

from __future__ import annotations

import errno
import os
from types import MappingProxyType

from nearsight.common.errors import SetupError

_NO_ROOM = "make room, or write to another place, and give the command again"
_NO_RIGHT = "give the right to it, or name another place"
_ADVICE = MappingProxyType(
    {
        errno.ENOSPC: _NO_ROOM,
        errno.EDQUOT: _NO_ROOM,
        errno.EROFS: "name another place",
        errno.EACCES: _NO_RIGHT,
        errno.EPERM: _NO_RIGHT,
        errno.EMFILE: "allow more: ulimit -n 4096",
        errno.ENFILE: "this machine has too many open files: end some programs",
    }
)


def refusal_of_machine(error: OSError) -> SetupError | None:
    """The error as one of this machine; None if it may as well be a bug.

    Parameters
    ----------
    error : OSError
        That nobody expected.
    """
    if error.errno is None or error.errno not in _ADVICE:
        return None
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return SetupError(": ".join([os.strerror(error.errno), *names]), advice=_ADVICE[error.errno])
