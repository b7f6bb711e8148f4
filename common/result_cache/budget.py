"""How sure is a cached result by now? Serve, verify or refuse, under one error budget for all keys.

Auto-refresh knows how often in a row a result was confirmed, and begins again after each conflict. Here, each
key keeps all that inferences found for it. From keys with such a history it is known how often their next
inference conflicted. This probability is compared with one price for the whole cache: keys far below it are
served and rarely verified, keys near it are verified often, keys above it run the classifier each time. So
the budget is spent on the keys that conflict least. The price follows a target: a share of wrong answers, or
of inferences.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.result_cache import Entry

MOST_SERVED = 30
"""Lookups served per verification, at most. A key that changed is found out, and errors can be estimated."""
_STEEPNESS = 8
"""How fast served lookups grow as a key conflicts less; infinite: served below the price, refused above."""
_MEMORY = 100
"""Inferences that a key remembers; at more, its counts are halved."""
_TRUST = 4.0
"""Conflicts that must be seen before a history is judged by these, rather than by its own counts."""
_FADING = 0.999
"""What is known of a history fades so far with each inference."""
_NO_CHANCE = 1e-3
"""Conflicts in a row that are less probable than this by chance: the key has changed, and starts again."""
_LOWEST_PRICE = 1e-3
_SOUND = 0.1
"""An account that was emptied is sound again when it holds this share."""
WRONG_ANSWERS, INFERENCES = 1_000, 3_000
"""What an account holds. Less makes the price restless, more makes it slow."""


class Budget:
    """The price of an error, which follows a target: an integral controller.

    Each lookup pays its share of the target into an account; each wrong answer, as verifications tell, is
    paid from it. The price follows what the account holds: more of it lets more lookups be served. So the
    errors of n lookups are off the target by at most what an account holds, divided by n. Beyond full and
    empty nothing is noted: a quiet time does not pay for many errors later. A budget of inferences works the
    other way round.

    Parameters
    ----------
    error : float, optional
        Share of the lookups that may be answered wrongly (the paper's E, equation 12).
    inferences : float, optional
        Share of the lookups that may run the classifier. One of the two is given.

    Raises
    ------
    InvalidArgument
        If not one of the two is given, or it is not between 0 and 1.
    """

    def __init__(self, *, error: float | None = None, inferences: float | None = None) -> None:
        if (error is None) == (inferences is None):
            raise InvalidArgument("a budget is a share of wrong answers or a share of inferences, not both")
        self.target = error if error is not None else inferences or 0.0
        if not 0.0 < self.target < 1.0:
            raise InvalidArgument(f"a budget is a share between 0 and 1, got {self.target:g}")
        self._of_errors = error is not None
        self._level = 0.5
        self._sound = True
        self.price = self._price()

    @property
    def most_wrong(self) -> float:
        """Share of the lookups that may be answered wrongly; 1 for a budget of inferences."""
        return self.target if self._of_errors else 1.0

    def affords(self, served: float, wrong: float) -> bool:
        """Whether the price may be higher where these are the shares of the lookups."""
        return wrong <= self.target if self._of_errors else 1.0 - served > self.target

    def note(self, lookups: int, wrong: int) -> None:
        """One inference tells about so many lookups, of which so many were answered wrongly."""
        if self._of_errors:
            earned = (self.target * lookups - wrong) / WRONG_ANSWERS
        else:
            earned = (1 - self.target * lookups) / INFERENCES
        self._level = min(1.0, max(0.0, self._level + earned))
        self.price = self._price()

    def overdrawn(self) -> bool:
        """Whether errors have just emptied the account. What earlier prices let be served is too much."""
        if self._of_errors and not self._level and self._sound:
            self._sound = False
            return True
        self._sound = self._sound or self._level > _SOUND
        return False

    def _price(self) -> float:
        """Highest probability of a conflict at which a lookup is served."""
        return float(_LOWEST_PRICE ** (1.0 - self._level))


class Histories:
    """How often keys conflict, by what inferences found for them before."""

    def __init__(self) -> None:
        self._histories: dict[tuple[int, int], list[float]] = {}
        """By agreements and conflicts, on a scale: conflicts that were seen next, and that were expected."""
        self._all = [0.0, 0.0]
        """The same of all histories: what one that is new is judged by."""

    def conflict(self, entry: Entry[Any]) -> float:
        """Probability that the next inference for the key of this entry finds another value."""
        own = _share(entry.conflicts, entry.inferences)
        seen, expected = self._histories.get(_history(entry), (0.0, 0.0))
        of_all = (self._all[0] + _TRUST) / (self._all[1] + _TRUST)
        return own * (seen + _TRUST * of_all) / (expected + _TRUST)

    def learn(self, entry: Entry[Any], *, agrees: bool) -> None:
        """What the next inference for this key found; the entry does not count it yet."""
        expected = _share(entry.conflicts, entry.inferences)
        for history in (self._all, self._histories.setdefault(_history(entry), [0.0, 0.0])):
            history[0] = history[0] * _FADING + (not agrees)
            history[1] = history[1] * _FADING + expected


class SequentialTest:
    """Decides after each inference how many lookups are served before the next one; none refuses the key.

    Parameters
    ----------
    budget : Budget
        The price of an error.
    rng : random.Random
        Draws which served lookup is verified, so that nobody can know it, and so that verified lookups are a
        fair sample also of keys that are forgotten soon.
    """

    def __init__(self, budget: Budget, rng: Random) -> None:
        self.budget = budget
        self._rng = rng
        self._histories = Histories()

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """Learn from an inference; keep the most frequent value; draw the next lookup to verify."""
        agrees = not entry.inferences or entry.value == value
        if lookups:
            self.budget.note(lookups, 0 if agrees else lookups - 1)
        if lookups and entry.inferences:
            self._histories.learn(entry, agrees=agrees)
        count(entry, value, agrees=agrees)
        self.schedule(entry)
        return self.budget.overdrawn()

    def schedule(self, entry: Entry[Any]) -> None:
        """Draw the next lookup to verify."""
        served = lookups_served(self.budget.price, self._histories.conflict(entry))
        entry.stands_for = served
        entry.to_serve = (
            int(math.log(1.0 - self._rng.random()) / math.log(served / (served + 1.0))) if served else 0
        )

    def refuses(self, entry: Entry[Any]) -> bool:
        """Whether the key conflicted, and is likelier to do so than the price allows."""
        return entry.conflicts > 0 and self._histories.conflict(entry) > self.budget.price


def lookups_served(price: float, conflict: float) -> int:
    """For each verification, of a key whose next inference conflicts with this probability."""
    return min(MOST_SERVED, int((price / conflict) ** _STEEPNESS))


def count(entry: Entry[Any], value: object, *, agrees: bool) -> None:
    """Count an inference. A rival replaces the value if it is as frequent, or too long in a row by chance."""
    if agrees:
        entry.inferences += 1
        entry.rivals = 0
    else:
        entry.conflicts += 1
        entry.rivals = entry.rivals + 1 if entry.rivals and entry.rival == value else 1
        entry.rival = value
        before = entry.conflicts - entry.rivals
        chance = _share(before, entry.inferences) ** entry.rivals
        if chance < _NO_CHANCE or entry.rivals >= entry.inferences:
            entry.conflicts = 0 if chance < _NO_CHANCE else before + entry.inferences
            entry.value, entry.inferences, entry.rivals = value, entry.rivals, 0
    if entry.inferences + entry.conflicts > _MEMORY:
        entry.inferences, entry.conflicts = max(1, entry.inferences // 2), entry.conflicts // 2
        entry.rivals = min(entry.rivals, entry.conflicts)


def _share(conflicts: int, inferences: int) -> float:
    """Of conflicts, by Jeffreys' prior: what a key's own counts say."""
    return (conflicts + 0.5) / (inferences + conflicts + 1.0)


def _history(entry: Entry[Any]) -> tuple[int, int]:
    return _scale(entry.inferences), _scale(entry.conflicts)


def _scale(count: int) -> int:
    """Two steps for each doubling: 0, 1, 2, 3, 4 to 5, 6 to 7, 8 to 11 and so on."""
    bits = count.bit_length()
    return count if count < 4 else 2 * bits - 2 + (count >> (bits - 2) & 1)
