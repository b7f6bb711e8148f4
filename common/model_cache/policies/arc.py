"""ARC: recent and frequent models in two lists, balanced by records of recent evictions from each list.

Source: Megiddo and Modha, ARC: a self-tuning, low overhead replacement cache (2003), figure 4. Adapted to
bytes: the budget is c, and list lengths and the target p are in bytes. A ghost (record of an evicted model)
changes p by its own size times the ratio of the ghost lists. After a load ghosts are removed until
|T1| + |B1| <= c and all four lists together are <= 2c. For models of equal size this is the published
algorithm.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim, until_enough


class _Models(OrderedDict[str, int]):
    """Models with their sizes, least recent first."""

    size_bytes = 0

    def add(self, model: str, size_bytes: int) -> None:
        """Add a model as the most recent."""
        self[model] = size_bytes
        self.size_bytes += size_bytes

    def remove(self, model: str) -> int:
        """Remove a model; returns its size."""
        size_bytes = self.pop(model)
        self.size_bytes -= size_bytes
        return size_bytes

    def drop_oldest(self) -> None:
        """Remove the least recent model."""
        self.remove(next(iter(self)))


class AdaptiveReplacement(Policy):
    """Scores are 0 for models that were requested once since their load, and 1 for frequent models."""

    def __init__(self) -> None:
        self._budget_bytes = 0
        self._target_bytes = 0.0
        self._recent, self._frequent = _Models(), _Models()
        self._recent_ghosts, self._frequent_ghosts = _Models(), _Models()
        self._ghost_was_frequent = False
        """Whether the last request was for an evicted frequent model."""
        self._returning = set[str]()
        """Ghosts that were requested. Further requests until the end of the load do not change the target."""

    def resized(self, budget_bytes: int) -> None:
        """Set c."""
        self._budget_bytes = budget_bytes
        self._target_bytes = min(self._target_bytes, budget_bytes)

    def requested(self, model: str, now_s: float) -> None:
        """Move a resident model to the frequent list; for a ghost, change the target."""
        del now_s
        self._ghost_was_frequent = model in self._frequent_ghosts
        if model in self._recent:
            self._frequent.add(model, self._recent.remove(model))
        elif model in self._frequent:
            self._frequent.move_to_end(model)
        elif model in self._returning:
            return
        elif model in self._recent_ghosts:
            self._returning.add(model)
            ratio = max(1.0, self._frequent_ghosts.size_bytes / self._recent_ghosts.size_bytes)
            moved = self._target_bytes + ratio * self._recent_ghosts[model]
            self._target_bytes = min(self._budget_bytes, moved)
        elif self._ghost_was_frequent:
            self._returning.add(model)
            ratio = max(1.0, self._recent_ghosts.size_bytes / self._frequent_ghosts.size_bytes)
            self._target_bytes = max(0.0, self._target_bytes - ratio * self._frequent_ghosts[model])

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model: to the frequent list if it was a ghost, else to the recent list."""
        del now_s
        self._returning.discard(model)
        target = self._recent
        for ghosts in (self._recent_ghosts, self._frequent_ghosts):
            if model in ghosts:
                ghosts.remove(model)
                target = self._frequent
        target.add(model, costs.size_bytes)
        self._trim()

    def evicted(self, model: str, now_s: float) -> None:
        """Move the model to the ghosts of its list."""
        del now_s
        if model in self._recent:
            self._recent_ghosts.add(model, self._recent.remove(model))
        else:
            self._frequent_ghosts.add(model, self._frequent.remove(model))

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Repeat REPLACE of the paper until enough bytes are free."""
        del now_s
        return until_enough(self._replaced(evictable), evictable, needed_bytes)

    def _replaced(self, evictable: Evictable) -> Iterator[Victim]:
        recent = deque(model for model in self._recent if model in evictable)
        frequent = deque(model for model in self._frequent if model in evictable)
        recent_bytes = self._recent.size_bytes
        while recent or frequent:
            above = recent_bytes > self._target_bytes or (
                self._ghost_was_frequent and recent_bytes == self._target_bytes
            )
            if recent and (above or not frequent):
                recent_bytes -= evictable[recent[0]].size_bytes
                yield Victim(recent.popleft(), 0.0)
            else:
                yield Victim(frequent.popleft(), 1.0)

    def _trim(self) -> None:
        c_bytes = self._budget_bytes
        while self._recent_ghosts and self._recent.size_bytes + self._recent_ghosts.size_bytes > c_bytes:
            self._recent_ghosts.drop_oldest()
        lists = (self._recent, self._frequent, self._recent_ghosts, self._frequent_ghosts)
        while self._frequent_ghosts and sum(one.size_bytes for one in lists) > 2 * c_bytes:
            self._frequent_ghosts.drop_oldest()
