"""When a cached result is verified: auto-refresh (approximate-key caching, section III-B).

Inputs with the same approximate key need not have the same class. So some lookups that the cache could serve
run the classifier instead, and compare. While a key's result is confirmed, verifications become exponentially
rarer; the first conflict replaces the result and starts again. A key with one dominant class costs few
inferences, a key with many classes causes few errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.result_cache import Entry

NEVER = 2**62
"""So many lookups are served before the next verification where there is to be none."""


@dataclass(frozen=True, slots=True)
class AutoRefresh:
    """The schedule of verifications of one key.

    Raises
    ------
    InvalidArgument
        If ``beta`` is less than 1.

    Notes
    -----
    Source: equation 6. Algorithm 1 of the paper contradicts it: the printed one infers at lookups
    1, 2, 5, 10, 19 for a back-off of 2, the equation at 1, 2, 4, 8, 16. Only the equation has the properties
    of proposition 1.
    """

    beta: float = 1.5
    """Back-off: 1 verifies every lookup, ``inf`` none."""
    as_printed: bool = False
    """Follow algorithm 1 as it is printed, instead of equation 6."""

    def __post_init__(self) -> None:
        if not self.beta >= 1:
            raise InvalidArgument(
                f"the back-off of auto-refresh is at least 1, got {self.beta:g}",
                advice="1 verifies every lookup, 1.5 is usual, inf verifies none",
            )

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """Keep the newest value; serve by the inferences in a row that gave it."""
        del lookups
        entry.inferences = entry.inferences + 1 if entry.inferences and entry.value == value else 1
        entry.value = value
        self.schedule(entry)
        return False

    def schedule(self, entry: Entry[Any]) -> None:
        """Serve by the inferences in a row that agreed."""
        entry.to_serve = entry.stands_for = self.to_serve(entry.inferences)

    def refuses(self, entry: Entry[Any]) -> bool:
        """Never: keys whose results conflict are verified more often."""
        del entry
        return False

    def to_serve(self, inferences: int) -> int:
        """How many lookups are served after so many agreeing inferences, before the next one verifies."""
        if self.as_printed:
            return 0 if inferences == 1 else self._power(inferences - 1)
        following = self._lookup_of(inferences + 1)
        return NEVER if following == NEVER else following - self._lookup_of(inferences) - 1

    def _lookup_of(self, inferences: int) -> int:
        """phi_n: the lookup, counted from 1, on which the n-th inference of one result falls."""
        return max(inferences, self._power(inferences - 1))

    def _power(self, exponent: int) -> int:
        """The back-off to this power, rounded down, at most `NEVER`."""
        if exponent == 0 or self.beta == 1:
            return 1
        if exponent * math.log(self.beta) >= math.log(NEVER):
            return NEVER
        return math.floor(self.beta**exponent)
