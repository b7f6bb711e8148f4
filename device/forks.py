"""A fork copies objects, not their threads: an object with threads works in the process that made it."""

from __future__ import annotations

import os


def check_process(made_in: int, what: str) -> None:
    """Refuse the use of an object after a fork; its requests would wait for ever.

    Parameters
    ----------
    made_in : int
        The process that made the object (`os.getpid`).
    what : str
        The object, as the message names it.

    Raises
    ------
    RuntimeError
        In another process.
    """
    if os.getpid() != made_in:
        raise RuntimeError(
            f"this {what} was made before the process forked, and its threads stayed behind: "
            "make one in each process, after the fork"
        )
