"""Settings of recognition. The defaults were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from nearsight.common.settings import SettingsGroup


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits that are checked before an image is decoded, and the size at which it is processed."""

    __pydantic_config__ = ConfigDict(
        use_attribute_docstrings=True
    )  # descriptions for `nearsight config init`

    max_bytes: int = 20 * 2**20
    """Maximum size of an image file [bytes]."""
    max_pixels: int = 50_000_000
    """Maximum number of pixels that an image may declare; larger images are refused without decoding."""
    longest_side: Annotated[int, Field(ge=32, le=2047)] = 640
    """Longest side in pixels of the processed image; smaller images are not enlarged."""


class RecognitionSettings(SettingsGroup):
    """Settings of the whole pipeline, from the image to the verified answer.

    The defaults suit serving: 800 query features and 1000 training features. More query features recognise
    more difficult photos (Stanford Mobile Visual Search, 1000 training features: recall of DVD covers is 0.98
    with 800 and 1.00 with 2000). They cost 2 ms more per lookup and 2.5 times the bytes on the wire, so only
    the second look uses them.
    """

    backend: str = "auto"
    """Classifier backend; 'auto' chooses one by the number of descriptors."""
    query_features: int = Field(default=800, ge=50, le=10_000)
    """Features extracted from a query."""
    training_features: int = Field(default=1000, ge=50, le=10_000)
    """Features kept per training image."""
    min_training_features: int = Field(default=20, ge=10)
    """Minimum number of features of a training image; images with fewer are refused."""
    fast_threshold: int = Field(default=5, ge=1, le=100)
    """FAST threshold of ORB in grey levels."""
    ratio: float = Field(default=0.85, gt=0, le=1)
    """Ratio test of votes, against the nearest descriptor of another object."""
    voting_features: int = Field(default=2000, ge=50)
    """Number of strongest query features that vote; verification uses all."""
    early_stop: bool = True
    """Stop voting when the lead of one object is decisive."""
    candidates: int = Field(default=6, ge=1, le=1000)
    """Maximum number of views that are verified in each round of voting."""
    view_ratio: float = Field(default=0.9, gt=0, le=1)
    """Ratio test of the verification, within one view."""
    min_inliers: int = Field(default=10, ge=8)
    """Minimum number of inliers at distinct positions."""
    min_inlier_share: float = Field(default=0.0125, ge=0, le=1)
    """Minimum inliers as a share of the query's features: 25 of 2000."""
    min_inlier_ratio: float = Field(default=0.05, ge=0, le=1)
    """Minimum inliers as a share of the correspondences with a view."""
    max_log10_false_alarms: float = Field(default=-6.0, le=0)
    """Maximum log10 of the accidental agreements expected per verified view."""
    rival_margin: float = Field(default=1.5, ge=0)
    """Minimum inliers of an object whose rival is not held, as a multiple of the rival's inliers, and at
    least 25. 0 disables this."""
    reprojection_px: float = Field(default=5.0, gt=0, le=50)
    """Largest reprojection error of an inlier, pixels."""
    look_again: bool = True
    """Search a second time, with more features, for an unknown image if no other tier follows."""
    limits: ImageLimits = ImageLimits()

    @classmethod
    def thorough(cls, *, backend: str = "auto") -> RecognitionSettings:
        """Settings for high recall: twice as many training features and more candidates."""
        return cls(backend=backend, training_features=2000, candidates=10)
