"""What fixes a museum: the numbers from which every one of its files follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.camera.photograph import DEFAULT_DIFFICULTY

VERSION = 1
"""Grows whenever the same numbers would give other pictures."""

UNKNOWN_FROM = 1_000_000
"""Exhibits from this index on are photographed but never in the catalogue."""


@dataclass(frozen=True, slots=True)
class MuseumSettings:
    """Size and kind of a museum."""

    objects: int = 500
    """Exhibits in the catalogue."""
    seed: int = 1
    """Names the museum."""
    photos_per_object: int = 2
    """Photos of each exhibit."""
    unknown_photos: int = 100
    """Photos of exhibits that are not in the catalogue, each of another one."""
    difficulty: float = DEFAULT_DIFFICULTY
    """Of the photos, in [0, 1]."""

    def __post_init__(self) -> None:
        for name in ("seed", "photos_per_object", "unknown_photos"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} must not be negative, got {getattr(self, name)}")
        if not 1 <= self.objects <= UNKNOWN_FROM:
            raise InvalidArgument(f"a museum has 1 to {UNKNOWN_FROM} objects, got {self.objects}")
        if not 0 <= self.difficulty <= 1:
            raise InvalidArgument(f"difficulty must be in [0, 1], got {self.difficulty}")

    def to_json(self) -> dict[str, object]:
        """As stored in ``museum.json``."""
        return {"version": VERSION, **asdict(self)}
