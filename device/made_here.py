"""Objects with threads belong to the process that made them: a fork copies the objects, not their threads."""

from __future__ import annotations

import os


class MadeHere:
    """Knows the process in which an object was made.

    Parameters
    ----------
    what : str
        The object, for a person.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise where the object would wait for threads that are not there.

        Raises
        ------
        RuntimeError
            If this process is a fork of the one that made the object.
        """
        if not self:
            raise RuntimeError(
                f"this {self._what} was made before the process forked, and its threads stayed behind: "
                "make one in each process, after the fork"
            )
