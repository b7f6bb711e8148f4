"""What the application holds of a request that it started."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from nearsight.common.errors import NearsightError
from nearsight.device.recognition import Recognition


class RequestHandle:
    """A request in flight, or completed."""

    def __init__(self, trace_id: str, cancel: Callable[[], bool]) -> None:
        self.trace_id = trace_id
        self._cancel = cancel
        self._outcome: Future[Recognition] = Future()

    def cancel(self) -> bool:
        """End the request now. Its callback gets a `Cancelled` error.

        Returns
        -------
        bool
            False if the outcome was known already; the callback gets, or got, that one.
        """
        return self._cancel()

    def done(self) -> bool:
        """Whether the outcome is known; the callback may still wait for its turn."""
        return self._outcome.done()

    def result(self, timeout: float | None = None) -> Recognition:
        """Wait for the outcome.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. The request's own deadline ends the wait as well.

        Raises
        ------
        NearsightError
            If the request failed.
        TimeoutError
            If ``timeout`` passed first; the request goes on.
        """
        return self._outcome.result(timeout)

    def settle(self, outcome: Recognition | NearsightError) -> None:
        """Make the outcome known. Called once, by the engine."""
        if isinstance(outcome, Recognition):
            self._outcome.set_result(outcome)
        else:
            self._outcome.set_exception(outcome)
