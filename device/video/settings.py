"""Settings of a network that runs over the frames of a video."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from nearsight.common.errors import InvalidArgument
from nearsight.common.inference.manifest import Pixels


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """Parameters of reuse, and conversion of frames to the network's input."""

    threshold_db: float = 20.0
    """T: blocks with a higher peak signal-to-noise ratio match; adjusted, see `most_deviation`."""
    block_px: int = 10
    """Side of a block, in pixels of the network's input."""
    expiry: int = 10
    """N: one of N frames is executed whole. Under a budget each block that differs is recomputed within N."""
    composite: bool = True
    """Match with the pixels from which each cached value was computed. False: with the last frame, as in the
    paper, where small differences accumulate."""
    regions: int = 4
    """Maximum number of rectangles that cover the blocks that did not match; networks below 10 ms use 2."""
    margin: float = 0.0
    """The frame is larger than the network's window by this share of its sides, so that the window can follow
    the picture, if searching for motion saves time. 0: the window is the whole frame."""
    check_every: int = 5
    """Of this many expiring frames, one is executed with and without reuse to measure deviations; 0: none."""
    most_deviation: float = 0.2
    """Bound of the outputs' deviation. Above it T rises; below half of it T falls, by at most 6 dB. See
    `DriftGuard`."""
    map_tolerance: float = 0.2
    """Recomputed values of feature maps count as unchanged if they differ from the cached ones by less than
    this share of the map's standard deviation. Adjusted together with T. 0: values are exact."""
    pixels: Pixels | None = None
    """Range of the network's input, as in `Manifest`. None: as in the repository, else "0..1", or "0..255" if
    the input is uint8."""
    size: tuple[int, int] | None = None
    """Rows and columns of the input, if the network leaves them open. None: 224, 224."""
    threads: int = 1
    """Threads of the network."""
    budget_ms: float | None = None
    """Time budget of a frame. To meet it, blocks slightly below T are postponed; see `TimeBudget`. None: no
    limit."""

    def __post_init__(self) -> None:
        minimum = {"block_px": 1, "expiry": 1, "regions": 1, "check_every": 0, "threads": 1}
        invalid = [name for name, one in minimum.items() if getattr(self, name) < one]
        invalid += [] if math.isfinite(self.threshold_db) else ["threshold_db"]
        invalid += [] if 0 <= self.map_tolerance < math.inf else ["map_tolerance"]
        invalid += [] if 0 <= self.margin <= 1 else ["margin"]
        invalid += [] if self.pixels in {None, *get_args(Pixels)} else ["pixels"]
        invalid += [] if self.most_deviation > 0 else ["most_deviation"]
        invalid += [] if self.budget_ms is None or (self.budget_ms > 0 and self.composite) else ["budget_ms"]
        invalid += [] if self.size is None or min(self.size) >= 1 else ["size"]
        if invalid:
            given = ", ".join(f"{name} = {getattr(self, name)}" for name in invalid)
            raise InvalidArgument(f"invalid settings of a video session: {given}", advice="see docs/video.md")
