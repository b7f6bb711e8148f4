"""The lowest of scores that only grow: a heap that corrects an entry when it comes to the top.

LFU and GDSF raise the score of a model with every request. A request then costs an assignment, and only an
eviction touches the heap.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from nearsight.common.model_cache.policy import ModelCosts, Victim

_Entry = tuple[float, int, str]


class GrowingScores:
    """Scores of resident models; of equal scores, the one that was set first is lower."""

    def __init__(self) -> None:
        self._scores: dict[str, tuple[float, int]] = {}
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._settings = 0

    def __contains__(self, model: str) -> bool:
        return model in self._scores

    def __getitem__(self, model: str) -> float:
        return self._scores[model][0]

    def add(self, model: str, score: float) -> None:
        """A model comes."""
        self._raise(model, score)
        self._push((score, self._settings, model))

    def set(self, model: str, score: float) -> None:
        """Replace a score by one that is not lower."""
        self._raise(model, score)

    def remove(self, model: str) -> None:
        """A model goes."""
        del self._scores[model], self._entries[model]

    def lowest(self, evictable: Mapping[str, ModelCosts], needed_bytes: int) -> list[Victim]:
        """Evictable models from the lowest score on, until their bytes suffice."""
        chosen: list[Victim] = []
        seen: list[_Entry] = []
        while needed_bytes > 0 and self._heap:
            entry = heappop(self._heap)
            score, setting, model = entry
            if self._entries.get(model) is not entry:
                continue  # of a model that has gone
            if self._scores[model] != (score, setting):
                self._push((*self._scores[model], model))
                continue
            seen.append(entry)
            if model in evictable:
                chosen.append(Victim(model, score))
                needed_bytes -= evictable[model].size_bytes
        for entry in seen:  # they are still resident
            heappush(self._heap, entry)
        return chosen

    def _raise(self, model: str, score: float) -> None:
        self._settings += 1
        self._scores[model] = (score, self._settings)

    def _push(self, entry: _Entry) -> None:
        self._entries[entry[2]] = entry
        heappush(self._heap, entry)
