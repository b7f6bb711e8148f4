"""Detects use after a fork, which copies objects without their threads."""

from __future__ import annotations

import os


def check_process(made_in: int, what: str) -> None:
    """Refuse to use an object in a forked process: its requests would wait for ever without its threads.

    Parameters
    ----------
    made_in : int
        Id of the process that made the object (`os.getpid`).
    what : str
        Name of the object in the message.

    Raises
    ------
    RuntimeError
        In another process.
    """
    if os.getpid() != made_in:
        raise RuntimeError(
            f"this {what} was made before the process forked, and its threads do not run in this process: "
            "make one in each process, after the fork"
        )
