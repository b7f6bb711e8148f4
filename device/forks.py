"""Use after a fork, which copies objects without their threads, is an error."""

from __future__ import annotations


def used_after_fork(what: str) -> RuntimeError:
    """The error for an object in a process that was forked from the one that made it.

    Without its threads, its requests would wait for ever.

    Parameters
    ----------
    what : str
        Name of the object in the message.
    """
    return RuntimeError(
        f"this {what} was made before the process forked, and its threads do not run in this process: "
        "make one in each process, after the fork"
    )
