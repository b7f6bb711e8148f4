"""Where the outcome of a call goes while its caller waits: the little of a ``Future`` that this takes.

A future costs more than sending a small message; most calls wait at once and need none.
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Outcome(Protocol[T_contra]):
    """What takes the outcome of a call, once: a ``Future`` or a `Waiter`."""

    def set_result(self, result: T_contra, /) -> None:
        """The call succeeded."""

    def set_exception(self, exception: BaseException | None, /) -> None:
        """The call failed."""


class Waiter(Generic[T]):
    """An outcome that one thread waits for."""

    __slots__ = ("_error", "_pending", "_result")

    def __init__(self) -> None:
        self._pending = threading.Lock()
        self._pending.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the outcome is there."""
        return not self._pending.locked()

    def set_result(self, result: T, /) -> None:
        """The call succeeded."""
        self._result = result
        self._pending.release()

    def set_exception(self, exception: BaseException | None, /) -> None:
        """The call failed."""
        self._error = exception
        self._pending.release()

    def wait(self) -> T:
        """The result; raises the error if the call failed."""
        with self._pending:
            if self._error is not None or self._result is None:
                raise self._error or RuntimeError("a call ended without an outcome")
            return self._result
