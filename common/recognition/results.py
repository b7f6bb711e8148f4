"""What recognition answers: an object with its corners and confidence, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Corners = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RecognizedObject:
    """An object that was found and verified; or the label of a network, which is then the id as well.

    Attributes
    ----------
    object_id, label, version, metadata
        From the object's model.
    confidence : float
        In (0, 1]; grows with the inliers and with the margin over the next object.
    inliers : int
        Correspondences that agree with one homography; 0 for a network.
    corners : four (x, y) pairs, or None
        Where the object's top-left, top-right, bottom-right and bottom-left corners are, in pixels of
        the image that the application gave. They may lie outside of it. None in an answer of the result
        cache or a network, which do not know where the object is in this photo.
    """

    object_id: str
    label: str
    version: int
    confidence: float
    inliers: int
    corners: Corners | None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecognitionResult:
    """Outcome of looking up one photo."""

    found: RecognizedObject | None
    """None means unknown: no object passed the verification. Never a guess."""
    match_ms: float
    verify_ms: float
    """Time spent in the classifier and in the verification."""
    extract_ms: float = 0.0
    """Time spent on features; 0 where they were given."""
