"""What changed in a Markov model since it was last stored: little, however large the model is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransitionCount:
    """One count of a Markov model, as it is stored.

    Attributes
    ----------
    history : tuple of str
        What came before, the latest last; empty for the popularity of the object.
    object_id : str
        What followed.
    count : float
        How often, with decay as of when it was stored. As a change, 0 means that it was forgotten.
    age_s : float
        Seconds since it was stored, for `MarkovModel.restore`.
    """

    history: tuple[str, ...]
    object_id: str
    count: float
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MarkovChanges:
    """What a store has to write, in this order.

    Attributes
    ----------
    removed_objects : tuple of str
        Delete every count with one of these in its history or after it.
    counts : tuple of TransitionCount
        Replace these counts; delete those that are 0.
    """

    removed_objects: tuple[str, ...] = ()
    counts: tuple[TransitionCount, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed_objects or self.counts)


class MarkovJournal:
    """Collects changes; objects are slots here, as in the model."""

    def __init__(self) -> None:
        # Dictionaries serve as ordered sets: what is written is the same in every run.
        self._touched: dict[tuple[tuple[int, ...], int], None] = {}
        self._removed: dict[str, None] = {}

    def touched(self, history: tuple[int, ...], slot: int) -> None:
        """The count of this transition changed."""
        self._touched[history, slot] = None

    def removed(self, object_ids: Iterable[str], slots: Iterable[int]) -> None:
        """Objects left, and their slots may stand for others from now on."""
        self._removed.update(dict.fromkeys(object_ids))
        gone = frozenset(slots)
        if gone:
            self._touched = {
                (history, slot): None
                for history, slot in self._touched
                if slot not in gone and gone.isdisjoint(history)
            }

    def drain(self) -> tuple[list[tuple[tuple[int, ...], int]], tuple[str, ...]]:
        """Hand out the touched transitions and the removed objects, and begin anew."""
        touched, removed = list(self._touched), tuple(self._removed)
        self.clear()
        return touched, removed

    def clear(self) -> None:
        """What is in the model is stored."""
        self._touched = {}
        self._removed = {}
