"""Settings of recognition; measurements support the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from nearsight.common.settings import SettingsGroup


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits that hold before an image is decoded, and the size at which it is processed."""

    max_bytes: int = 20 * 2**20
    """Longest accepted file."""
    max_pixels: int = 50_000_000
    """Most pixels that an image may declare; larger ones are refused without decoding."""
    longest_side: Annotated[int, Field(ge=32, le=2047)] = 640
    """Longest side in pixels of the processed image; smaller images are not enlarged."""


class RecognitionSettings(SettingsGroup):
    """Settings of the whole pipeline, from the image to the verified answer.

    The defaults are for serving: 800 query and 1000 training features. More query features find more of the
    hard photos (measured on Stanford Mobile Visual Search, 1000 training features: DVD covers 0.98 with 800,
    1.00 with 2000), for 2 ms more per lookup and twice the bytes on the wire: only the second look has
    them.
    """

    backend: str = "auto"
    """Classifier backend; 'auto' picks by size."""
    query_features: int = Field(default=800, ge=50, le=10_000)
    """Features extracted from a query."""
    training_features: int = Field(default=1000, ge=50, le=10_000)
    """Features kept per training image."""
    min_training_features: int = Field(default=20, ge=10)
    """A training image with fewer features is refused."""
    fast_threshold: int = Field(default=5, ge=1, le=100)
    """FAST threshold of ORB, grey levels."""
    ratio: float = Field(default=0.85, gt=0, le=1)
    """Votes: ratio test against the best neighbour of another object."""
    voting_features: int = Field(default=2000, ge=50)
    """Strongest query features that vote; all are used to verify."""
    early_stop: bool = True
    """Stop the vote once one object's lead is decisive."""
    candidates: int = Field(default=6, ge=1, le=1000)
    """Views that are verified at most."""
    view_ratio: float = Field(default=0.9, gt=0, le=1)
    """Verification: ratio test within one view."""
    min_inliers: int = Field(default=10, ge=8)
    """Places that must agree with one homography."""
    min_inlier_share: float = Field(default=0.0125, ge=0, le=1)
    """Inliers among the features of the query: 25 of 2000."""
    min_inlier_ratio: float = Field(default=0.05, ge=0, le=1)
    """Inliers among the correspondences of a view."""
    max_log10_false_alarms: float = Field(default=-6.0, le=0)
    """Log10 of the agreements by chance expected per verified view."""
    rival_margin: float = Field(default=1.5, ge=0)
    """An object whose rival is not here needs so many times the rival's inliers, at least 25; 0: none."""
    reprojection_px: float = Field(default=5.0, gt=0, le=50)
    """Largest reprojection error of an inlier, pixels."""
    look_again: bool = True
    """Look again at an unknown image where no other tier is asked (`recognize_image`)."""
    limits: ImageLimits = ImageLimits()

    @classmethod
    def thorough(cls, *, backend: str = "auto") -> RecognitionSettings:
        """Settings for high recall: twice the training features, more candidates."""
        return cls(backend=backend, training_features=2000, candidates=10)
