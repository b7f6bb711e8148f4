"""Objects with threads belong to the process that made them: a fork copies the objects, not their threads."""

from __future__ import annotations


def made_elsewhere(what: str) -> RuntimeError:
    """The error for an object that would wait for threads which stayed in the process that forked.

    Whoever has the object compares `os.getpid` with that of its making: photos are too many for a call.
    """
    return RuntimeError(
        f"this {what} was made before the process forked, and its threads stayed behind: "
        "make one in each process, after the fork"
    )
