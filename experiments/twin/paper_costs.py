"""What everything cost in the dissertation: its own polynomials, and the machines of its table 6.1.

With them the twin should show the dissertation's own table 6.4, so they are an oracle for it; and they tell
what in our figures is due to a classifier that is faster than theirs.

f(k) and recall(k) of the edge are those of tables 3.2 (LSH, Stanford) and 3.1, of devices those of table 4.1.
The constant term counts as extraction: it is what a lookup among nothing takes. The rest is assumed:

- A lookup of table 3.2 keeps the four cores of its machine busy, as OpenCV's matchers do. So the edge with 8
  cores works on two photos at a time; among 132 objects it keeps up with 2 / 0.298 s = 6.7 photos per second.
  Table 6.4 says the same of the measured system: up to 7 devices. A device works on one photo at a time.
- The cloud's speed is taken from table 6.4 itself: 600 ms for one device and 500 classes is half of f(500);
  more than 5 s on every network with 5 devices, and not with 300 classes, is two photos at a time. So of
  only-cloud these bounds are no oracle; what lies between them is.
- A photo has about 100 kB. Nothing is looked at twice, and what is not found takes no longer.
"""

from __future__ import annotations

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.session import Hardware

_ORIGIN = "Cachier dissertation"
_EDGE_MS = (51.14, 1.87)
_EDGE_RECALL = (0.90, -0.00014)
_DEVICE_TABLE = (
    (200, (170.0, 0.70), (0.81, -0.0062)),
    (400, (221.0, 1.13), (0.87, -0.0032)),
    (600, (265.0, 1.74), (0.88, -0.0012)),
    (800, (311.0, 2.05), (0.87, -0.0015)),
)
_LARGEST_EDGE_K, _LARGEST_DEVICE_K = 500, 40
_MATCHING_MS = 1.0
"""Of the constant term: a lookup cannot take nothing."""

PAPER_PHOTO_BYTES = (100_000.0, 0.4)
"""Median and spread of a photo with 640 pixels: what Stanford's phone photos have at JPEG quality 95."""

PAPER_HARDWARE = Hardware(cloud=2, edge=2, device=1, cloud_slowness=0.5)
"""Table 6.1, in photos at a time."""


def paper_costs() -> CostModel:
    """The dissertation's own costs."""
    return CostModel(
        edge=_profile(800, _LARGEST_EDGE_K, _EDGE_MS, _EDGE_RECALL),
        device=DeviceProfile(
            profiles=tuple(
                _profile(features, _LARGEST_DEVICE_K, time_ms, recall)
                for features, time_ms, recall in _DEVICE_TABLE
            )
        ),
        miss_factor=1.0,
        second_look_ms=0.0,
        fitted_to=_ORIGIN,
    )


def _profile(
    features: int, largest_k: int, time_ms: tuple[float, float], recall: tuple[float, float]
) -> CacheProfile:
    constant_ms, slope_ms = time_ms
    return CacheProfile(
        backend="flann-lsh",
        query_features=features,
        largest_k=largest_k,
        lookup_ms=(_MATCHING_MS, slope_ms),
        recall=recall,
        extraction_ms=constant_ms - _MATCHING_MS,
        dataset=_ORIGIN,
    )
