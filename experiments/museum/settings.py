"""Settings of a museum: the numbers that determine all of its files."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.camera.photograph import DEFAULT_DIFFICULTY

VERSION = 1
"""Increased whenever the same settings would produce other pictures."""

UNKNOWN_FROM = 1_000_000
"""First index of the exhibits that are photographed but not in the catalogue."""


@dataclass(frozen=True, slots=True)
class MuseumSettings:
    """Size, seed and photo difficulty of a museum."""

    objects: int = 500
    """Exhibits in the catalogue."""
    seed: int = 1
    """Seed of all random streams; identifies the museum."""
    photos_per_object: int = 2
    """Photos of each exhibit."""
    unknown_photos: int = 100
    """Photos of exhibits that are not in the catalogue, each of a different exhibit."""
    difficulty: float = DEFAULT_DIFFICULTY
    """Difficulty of the photos, in [0, 1]."""

    def __post_init__(self) -> None:
        for name in ("seed", "photos_per_object", "unknown_photos"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} must not be negative, got {getattr(self, name)}")
        if not 1 <= self.objects <= UNKNOWN_FROM:
            raise InvalidArgument(f"a museum has 1 to {UNKNOWN_FROM} objects, got {self.objects}")
        if not 0 <= self.difficulty <= 1:
            raise InvalidArgument(f"difficulty must be in [0, 1], got {self.difficulty}")
