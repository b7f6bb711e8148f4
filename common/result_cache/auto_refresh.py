"""Auto-refresh: the schedule of verifications of cached results (approximate-key caching, section III-B).

Inputs with the same approximate key need not have the same class. So for some lookups that the cache could
serve, the classifier runs, and the results are compared. While the result of a key is confirmed,
verifications become exponentially rarer. The first conflict replaces the result and restarts the schedule. So
a key with one dominant class needs few inferences, and a key with many classes causes few errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.result_cache import Entry

NEVER = 2**62
"""Number of lookups served before the next verification if verification is disabled."""


@dataclass(frozen=True, slots=True)
class AutoRefresh:
    """The schedule of verifications of one key.

    Raises
    ------
    InvalidArgument
        If ``beta`` is less than 1.

    Notes
    -----
    Source: equation 6. Algorithm 1 of the paper contradicts it: for a back-off of 2, the printed algorithm
    infers at lookups 1, 2, 5, 10, 19, and the equation at 1, 2, 4, 8, 16. Only the equation has the
    properties of proposition 1.
    """

    beta: float = 1.5
    """Back-off: 1 verifies every lookup, ``inf`` none."""
    as_printed: bool = False
    """Whether to use algorithm 1 as it is printed instead of equation 6."""

    def __post_init__(self) -> None:
        if not self.beta >= 1:
            raise InvalidArgument(
                f"the back-off of auto-refresh is at least 1, got {self.beta:g}",
                advice="1 verifies every lookup, 1.5 is usual, inf verifies none",
            )

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """Store the newest value, and schedule by the number of consecutive inferences with this value."""
        del lookups
        entry.inferences = entry.inferences + 1 if entry.inferences and entry.value == value else 1
        entry.value = value
        self.schedule(entry)
        return False

    def schedule(self, entry: Entry[Any]) -> None:
        """Set the next verification by the number of consecutive inferences that agreed."""
        entry.to_serve = entry.represented = self.to_serve(entry.inferences)

    def refuses(self, entry: Entry[Any]) -> bool:
        """Always False: keys with conflicting results are verified more often instead."""
        del entry
        return False

    def to_serve(self, inferences: int) -> int:
        """Number of lookups served after this number of agreeing inferences, before the next verification."""
        if self.as_printed:
            return 0 if inferences == 1 else self._power(inferences - 1)
        following = self._lookup_of(inferences + 1)
        return NEVER if following == NEVER else following - self._lookup_of(inferences) - 1

    def _lookup_of(self, inferences: int) -> int:
        """phi_n: the lookup, counted from 1, of the n-th inference of one result."""
        return max(inferences, self._power(inferences - 1))

    def _power(self, exponent: int) -> int:
        """The back-off to this power, rounded down, at most `NEVER`."""
        if exponent == 0 or self.beta == 1:
            return 1
        if exponent * math.log(self.beta) >= math.log(NEVER):
            return NEVER
        return math.floor(self.beta**exponent)
