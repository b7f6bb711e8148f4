"""How many retries a client may make: few enough that they never double the load of a struggling server."""

from __future__ import annotations


class RetryBudget:
    """A bucket of tokens: each call adds a fraction of one, each retry takes one.

    Parameters
    ----------
    ratio : float
        Retries per call in the long run, e.g. 0.1.
    burst : float
        Tokens that the bucket holds at most, and at the start.
    """

    def __init__(self, *, ratio: float, burst: float) -> None:
        self._ratio = ratio
        self._burst = burst
        self._tokens = burst

    @property
    def tokens(self) -> float:
        """Retries that may be made at once."""
        return self._tokens

    def on_call(self) -> None:
        """A call was made for the first time."""
        self._tokens = min(self._burst, self._tokens + self._ratio)

    def take(self) -> bool:
        """Whether one more retry may be made; if so, it is counted."""
        # Sums of 0.1 fall short of 1 by rounding.
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True
