"""The recognition cache of the device: an immutable snapshot that answers, replaced as a whole (4.7.1).

A request takes the snapshot once and uses that one to its end, with the number of features that goes with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nearsight.common.recognition.models import Features
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject

Contents = frozenset[tuple[str, int]]
"""Object ids with the versions of their models."""

SecondLook = Callable[[Contents, Features], RecognizedObject | None]
"""Looks again at features that no model explained."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalSnapshot:
    """What the device recognises by itself, and how.

    Attributes
    ----------
    recognizer : ObjectRecognizer
        May be empty: then no photo is looked up.
    query_features : int
        Features to extract from a photo for it.
    """

    recognizer: ObjectRecognizer
    query_features: int

    def __len__(self) -> int:
        return len(self.recognizer)

    @property
    def names(self) -> frozenset[str]:
        """Objects that it answers with."""
        return frozenset(self.recognizer.models)

    @property
    def contents(self) -> Contents:
        """Objects and versions that it answers with."""
        return frozenset((name, model.version) for name, model in self.recognizer.models.items())


class LocalCache:
    """Holds the snapshot that answers now, and counts what it did. Thread-safe.

    Parameters
    ----------
    snapshot : LocalSnapshot
        To begin with.
    second_look : callable, optional
        Asked about photos that the snapshot does not know, with what it answers with.
    """

    def __init__(self, snapshot: LocalSnapshot, second_look: SecondLook | None = None) -> None:
        self._snapshot = snapshot
        self._second_look = second_look
        self._lock = threading.Lock()
        self._lookups = 0
        self._hits = 0

    @property
    def snapshot(self) -> LocalSnapshot:
        """What answers now."""
        return self._snapshot

    @property
    def counts(self) -> tuple[int, int]:
        """Lookups, and hits among them."""
        with self._lock:
            return self._lookups, self._hits

    def swap(self, snapshot: LocalSnapshot) -> None:
        """Answer from this snapshot from now on."""
        # Binding a name is atomic: no lock stands between a request and its snapshot.
        self._snapshot = snapshot

    def lookup(self, snapshot: LocalSnapshot, features: Features) -> RecognizedObject | None:
        """What the photo shows; None is a miss."""
        found = snapshot.recognizer.recognize(features).found
        if found is None and self._second_look is not None:
            found = self._second_look(snapshot.contents, features)
        with self._lock:
            self._lookups += 1
            self._hits += found is not None
        return found
