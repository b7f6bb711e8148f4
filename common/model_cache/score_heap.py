"""Scores of resident models in a heap, lowest first. Raised scores are corrected lazily.

LFU and GDSF raise a model's score with every request. This costs one assignment; only evictions change the
heap. An outdated entry is corrected when it reaches the top. mCache's importance queue inserts and removes
models, but does not raise scores.
"""

from __future__ import annotations

from heapq import heappop, heappush

from nearsight.common.model_cache.policy import Evictable, Victim

_Entry = tuple[float, float, str]
"""Score, tie-breaker, model."""


class ScoreHeap:
    """Scores of models. Of equal scores the lower ``tie`` comes first; default: the one set first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []
        """Contains for each model its entry, or an earlier and lower one, and entries that are obsolete."""
        self._changes = 0

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def __getitem__(self, model: str) -> float:
        return self._entries[model][0]

    def add(self, model: str, score: float, tie: float | None = None) -> None:
        """Add a model."""
        self._changes += 1
        entry = self._entries[model] = (score, self._changes if tie is None else tie, model)
        heappush(self._heap, entry)

    def raise_score(self, model: str, score: float) -> None:
        """Replace the score of a model by one that is not lower."""
        self._changes += 1
        self._entries[model] = (score, self._changes, model)

    def remove(self, model: str) -> None:
        """Remove a model."""
        del self._entries[model]

    def lowest(self, evictable: Evictable, needed_bytes: int) -> list[Victim]:
        """Evictable models in ascending order of scores, until their sizes reach the needed bytes."""
        chosen: list[Victim] = []
        seen: dict[str, _Entry] = {}
        while needed_bytes > 0 and self._heap:
            entry = heappop(self._heap)
            model = entry[2]
            now = self._entries.get(model)
            if now is None or model in seen:
                continue  # obsolete: the model was removed, or added again later
            if entry != now:
                heappush(self._heap, now)
                continue
            seen[model] = entry
            if model in evictable:
                chosen.append(Victim(model, entry[0]))
                needed_bytes -= evictable[model].size_bytes
        for entry in seen.values():  # these models are still resident
            heappush(self._heap, entry)
        return chosen
