"""Decides whether to serve, verify or refuse a cached result, with one error budget for all keys.

Auto-refresh uses only the number of consecutive confirmations and restarts after each conflict. This module
keeps counts of all inferences of each key. Statistics over all keys with the same history give the
probability that the next inference conflicts. This probability is compared with one price for the whole
cache. Keys far below the price are served and rarely verified; keys near the price are verified often; keys
above it run the classifier each time. So the budget is spent on the keys with the fewest conflicts. The price
follows a target: a share of wrong answers, or of inferences.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.result_cache import Entry

MOST_SERVED = 30
"""Maximum lookups served per verification, to detect changes of a key and to estimate errors."""
_STEEPNESS = 8
"""Steepness of the increase of served lookups with a falling probability of conflict; with infinity, keys
would be either served or refused."""
_MEMORY = 100
"""Maximum number of inferences in the counts of a key; above it, the counts are halved."""
_PRIOR_CONFLICTS = 4.0
"""Pseudo-count of conflicts: until so many are observed, the counts of the key weigh more than its
history."""
_DECAY = 0.999
"""Factor by which the statistics of a history decay with each inference."""
_MIN_CHANCE = 1e-3
"""Below this probability by chance, consecutive conflicts mean that the key has changed; it starts anew."""
_LOWEST_PRICE = 1e-3
_RECOVERED_LEVEL = 0.1
"""Level at which an emptied account counts as recovered."""
WRONG_ANSWERS, INFERENCES = 1_000, 3_000
"""Capacity of an account, in wrong answers and in inferences; smaller: unstable price, larger: slow."""


class Budget:
    """The price of an error, adjusted to a target by an integral controller.

    Each lookup adds its share of the target to an account; each wrong answer, as estimated by verifications,
    is deducted. The price follows the level of the account: at a higher level, more lookups are served. So
    over n lookups the share of errors deviates from the target by at most the capacity of the account,
    divided by n. The level is limited to the range from empty to full, so that a period with few errors does
    not allow many errors later. A budget of inferences works the other way round.

    Parameters
    ----------
    error : float, optional
        Share of the lookups that may be answered wrongly (the paper's E, equation 12).
    inferences : float, optional
        Share of the lookups that may run the classifier. Exactly one of the two must be given.

    Raises
    ------
    InvalidArgument
        If not exactly one of the two is given, or it is not between 0 and 1.
    """

    def __init__(self, *, error: float | None = None, inferences: float | None = None) -> None:
        if (error is None) == (inferences is None):
            raise InvalidArgument("a budget is a share of wrong answers or a share of inferences, not both")
        self.target = error if error is not None else inferences or 0.0
        if not 0.0 < self.target < 1.0:
            raise InvalidArgument(f"a budget is a share between 0 and 1, got {self.target:g}")
        self._of_errors = error is not None
        self._level = 0.5
        self._recovered = True
        self.price = self._price()

    @property
    def most_wrong(self) -> float:
        """Share of the lookups that may be answered wrongly; 1 for a budget of inferences."""
        return self.target if self._of_errors else 1.0

    def allows(self, served: float, wrong: float) -> bool:
        """Whether the budget allows a higher price at these shares of served and wrong lookups."""
        return wrong <= self.target if self._of_errors else 1.0 - served > self.target

    def note(self, lookups: int, wrong: int) -> None:
        """Record an inference that represents ``lookups`` lookups, ``wrong`` of them answered wrongly."""
        if self._of_errors:
            earned = (self.target * lookups - wrong) / WRONG_ANSWERS
        else:
            earned = (1 - self.target * lookups) / INFERENCES
        self._level = min(1.0, max(0.0, self._level + earned))
        self.price = self._price()

    def overdrawn(self) -> bool:
        """Whether errors have just emptied the account, so that earlier prices served too many lookups."""
        if self._of_errors and not self._level and self._recovered:
            self._recovered = False
            return True
        self._recovered = self._recovered or self._level > _RECOVERED_LEVEL
        return False

    def _price(self) -> float:
        """Highest probability of a conflict at which a lookup is served."""
        return float(_LOWEST_PRICE ** (1.0 - self._level))


class Histories:
    """Statistics of how often keys conflict, by their history of earlier inferences."""

    def __init__(self) -> None:
        self._histories: dict[tuple[int, int], list[float]] = {}
        """By scaled agreements and conflicts: observed and expected conflicts of the next inferences."""
        self._all = [0.0, 0.0]
        """The same sums over all histories, used for new histories."""

    def conflict(self, entry: Entry[Any]) -> float:
        """Probability that the next inference for the key of this entry gives another value."""
        own = _share(entry.conflicts, entry.inferences)
        seen, expected = self._histories.get(_history(entry), (0.0, 0.0))
        of_all = (self._all[0] + _PRIOR_CONFLICTS) / (self._all[1] + _PRIOR_CONFLICTS)
        return own * (seen + _PRIOR_CONFLICTS * of_all) / (expected + _PRIOR_CONFLICTS)

    def learn(self, entry: Entry[Any], *, agrees: bool) -> None:
        """Record the result of the next inference for this key, before it is counted in the entry."""
        expected = _share(entry.conflicts, entry.inferences)
        for history in (self._all, self._histories.setdefault(_history(entry), [0.0, 0.0])):
            history[0] = history[0] * _DECAY + (not agrees)
            history[1] = history[1] * _DECAY + expected


class SequentialTest:
    """Decides after each inference how many lookups are served before the next one; 0 refuses the key.

    Parameters
    ----------
    budget : Budget
        The price of an error.
    rng : random.Random
        Selects the served lookups to verify. So they are unpredictable, and a fair sample that includes keys
        evicted soon.
    """

    def __init__(self, budget: Budget, rng: Random) -> None:
        self.budget = budget
        self._rng = rng
        self._histories = Histories()

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """Learn from an inference, store the most frequent value, and draw the next lookup to verify."""
        agrees = not entry.inferences or entry.value == value
        if lookups:
            self.budget.note(lookups, 0 if agrees else lookups - 1)
        if lookups and entry.due:
            self._histories.learn(entry, agrees=agrees)
        count(entry, value, agrees=agrees)
        self.schedule(entry)
        return self.budget.overdrawn()

    def schedule(self, entry: Entry[Any]) -> None:
        """Draw the next lookup to verify."""
        served = lookups_served(self.budget.price, self._histories.conflict(entry))
        entry.represented = served
        entry.to_serve = (
            int(math.log(1.0 - self._rng.random()) / math.log(served / (served + 1.0))) if served else 0
        )

    def refuses(self, entry: Entry[Any]) -> bool:
        """Whether the key has conflicted, and its probability of conflict exceeds the price."""
        return entry.conflicts > 0 and self._histories.conflict(entry) > self.budget.price


def lookups_served(price: float, conflict: float) -> int:
    """Number of lookups served per verification, for a key with this probability of conflict."""
    return min(MOST_SERVED, int((price / conflict) ** _STEEPNESS))


def count(entry: Entry[Any], value: object, *, agrees: bool) -> None:
    """Count an inference; a rival replaces the value if as frequent, or repeated too often to be chance."""
    if agrees:
        entry.inferences += 1
        entry.rivals = 0
    else:
        entry.conflicts += 1
        entry.rivals = entry.rivals + 1 if entry.rivals and entry.rival == value else 1
        entry.rival = value
        before = entry.conflicts - entry.rivals
        chance = _share(before, entry.inferences) ** entry.rivals
        if chance < _MIN_CHANCE or entry.rivals >= entry.inferences:
            entry.conflicts = 0 if chance < _MIN_CHANCE else before + entry.inferences
            entry.value, entry.inferences, entry.rivals = value, entry.rivals, 0
    if entry.inferences + entry.conflicts > _MEMORY:
        entry.inferences, entry.conflicts = max(1, entry.inferences // 2), entry.conflicts // 2
        entry.rivals = min(entry.rivals, entry.conflicts)


def _share(conflicts: int, inferences: int) -> float:
    """Estimated share of conflicts from a key's own counts, with Jeffreys' prior."""
    return (conflicts + 0.5) / (inferences + conflicts + 1.0)


def _history(entry: Entry[Any]) -> tuple[int, int]:
    return _scale(entry.inferences), _scale(entry.conflicts)


def _scale(count: int) -> int:
    """A logarithmic scale with two steps per doubling: 0, 1, 2, 3, 4 to 5, 6 to 7, 8 to 11 and so on."""
    bits = count.bit_length()
    return count if count < 4 else 2 * bits - 2 + (count >> (bits - 2) & 1)
