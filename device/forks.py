"""Use after a fork, which copies objects without their threads, is an error."""

from __future__ import annotations

import os


def check_process(owner: int, what: str) -> None:
    """Refuse the use of an object in a process that was forked from the one that made it.

    Without its threads, its requests would wait for ever.

    Parameters
    ----------
    owner : int
        Id of the process that made the object.
    what : str
        Name of the object in the message.

    Raises
    ------
    RuntimeError
        If this is another process.
    """
    if os.getpid() != owner:
        raise RuntimeError(
            f"this {what} was made before the process forked, and its threads do not run in this process: "
            "make one in each process, after the fork"
        )
