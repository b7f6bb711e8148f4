"""What a person can set about recognition, with the defaults that the measurements support."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_SMALLEST_PART = 0.7
"""Of the longest side: 200 features recall 0.91 of 16 objects at 640 px, 0.90 at 448, 0.75 at 320."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits that hold before an image is decoded, and the size at which it is processed.

    Attributes
    ----------
    max_bytes : int
        Longest accepted file.
    max_pixels : int
        Most pixels that an image may declare; larger ones are refused without decoding.
    longest_side : int
        Longest side in pixels of the processed image; smaller images are not enlarged.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 50_000_000
    longest_side: Annotated[int, Field(ge=32, le=2047)] = 640


class RecognitionSettings(BaseModel):
    """Settings of the whole pipeline, from the image to the verified answer.

    The defaults are for serving: 800 query and 1000 training features. More query features find more of the
    hard photos (measured on Stanford Mobile Visual Search, 1000 training features: DVD covers 0.98 with 800,
    1.00 with 2000), for 2 ms more per lookup and twice the bytes on the wire: only the second look has
    them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Annotated[str, Field(description="classifier backend; 'auto' picks by size")] = "auto"
    query_features: Annotated[int, Field(ge=50, le=10_000, description="features extracted from a query")] = (
        800
    )
    training_features: Annotated[
        int, Field(ge=50, le=10_000, description="features kept per training image")
    ] = 1000
    min_training_features: Annotated[
        int, Field(ge=10, description="a training image with fewer features is refused")
    ] = 20
    fast_threshold: Annotated[int, Field(ge=1, le=100, description="FAST threshold of ORB, grey levels")] = 5
    ratio: Annotated[
        float, Field(gt=0, le=1, description="votes: ratio test against the best neighbour of another object")
    ] = 0.85
    voting_features: Annotated[
        int, Field(ge=50, description="strongest query features that vote; all are used to verify")
    ] = 2000
    early_stop: Annotated[bool, Field(description="stop the vote once one object's lead is decisive")] = True
    candidates: Annotated[int, Field(ge=1, le=1000, description="views that are verified at most")] = 6
    view_ratio: Annotated[
        float, Field(gt=0, le=1, description="verification: ratio test within one view")
    ] = 0.9
    min_inliers: Annotated[int, Field(ge=8, description="places that must agree with one homography")] = 10
    min_inlier_share: Annotated[
        float, Field(ge=0, le=1, description="inliers among the features of the query: 25 of 2000")
    ] = 0.0125
    min_inlier_ratio: Annotated[
        float, Field(ge=0, le=1, description="inliers among the correspondences of a view")
    ] = 0.05
    max_log10_false_alarms: Annotated[
        float, Field(le=0, description="log10 of the agreements by chance expected per verified view")
    ] = -6.0
    reprojection_px: Annotated[
        float, Field(gt=0, le=50, description="largest reprojection error of an inlier, pixels")
    ] = 5.0
    look_again: Annotated[
        bool,
        Field(description="look again at an unknown image where no other tier is asked (`recognize_image`)"),
    ] = True
    limits: ImageLimits = ImageLimits()

    @classmethod
    def thorough(cls, *, backend: str = "auto") -> RecognitionSettings:
        """Settings for high recall: twice the training features, more candidates."""
        return cls(backend=backend, training_features=2000, candidates=10)

    def side_px_for(self, features: int) -> int:
        """Longest side of the image in which so few features are as dense as ``query_features`` are.

        ORB spends its time on pixels more than on the features that it keeps: 200 features of the whole image
        take 0.67 of the time of 800, of the smaller one 0.45. What is found in a smaller image are the larger
        structures, which the models hold as well, as they are trained on a pyramid of sizes.
        """
        part = min(1.0, max(_SMALLEST_PART, math.sqrt(features / self.query_features)))
        return max(32, round(part * self.limits.longest_side))
