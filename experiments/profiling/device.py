"""Pipelines of a device in its offline analysis (dissertation, 4.4.1 and 4.5.2): table 4.1 and figure 4.4.

`measuring.analyse` uses the same subsets and photos for every number of features, so that only this number
differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import side_px_for
from nearsight.common.recognition.settings import RecognitionSettings

FEATURE_COUNTS = (200, 400, 600, 800)
"""Numbers of features in table 4.1."""

_SIZES = (1, 2, 5, 10, 20, 40, 80)


def device_sizes(objects: int) -> tuple[int, ...]:
    """Cache sizes for a device: small, because its cache holds only the likely next objects."""
    return (*(size for size in _SIZES if size < objects), min(objects, 2 * _SIZES[-1]))


def device_pipelines(settings: RecognitionSettings, counts: Sequence[int]) -> list[RecognitionSettings]:
    """Pipelines of a device for numbers of features per photo, in ascending order.

    Raises
    ------
    InvalidArgument
        If a number of features is out of range.
    """
    if not counts or not all(50 <= count <= 10_000 for count in counts):
        raise InvalidArgument(
            f"numbers of features must be between 50 and 10000, got {list(counts)}",
            advice="for example --features 200,400,600,800",
        )
    return [quick_pipeline(settings, count) for count in sorted(set(counts))]


def quick_pipeline(settings: RecognitionSettings, features: int) -> RecognitionSettings:
    """Pipeline of a device that uses this number of features per photo."""
    limits = replace(settings.limits, longest_side=side_px_for(features, settings))
    return settings.model_copy(update={"query_features": features, "limits": limits})
