"""Results of recognition: an object with its corners and confidence, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Corners = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RecognizedObject:
    """An object that was found and verified, or the label of a network, which is then also the id.

    Attributes
    ----------
    object_id, label, version, metadata
        From the object's model.
    confidence : float
        In (0, 1]; grows with the inliers and with the margin over the next object.
    inliers : int
        Correspondences that agree with one homography; 0 for a network.
    corners : four (x, y) pairs, or None
        Positions of the object's top-left, top-right, bottom-right and bottom-left corners, in pixels of the
        source image. They may lie outside of it. None in answers of the result cache and of networks, which
        do not locate the object in the photo.
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
    """Result of recognising one photo, with the time of each step [ms]."""

    found: RecognizedObject | None
    """None means unknown: no object passed the verification."""
    match_ms: float
    verify_ms: float
    """Time in the classifier and in the verification [ms]."""
    extract_ms: float = 0.0
    """Time for extracting features [ms]; 0 if the caller supplied them."""
