"""Result of a network for one frame of a video, and the reasons for which frames are executed whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.matching import Offset

FIRST, EXPIRED = "first frame", "expired"
PAUSED = "reuse is paused, as outputs deviated"
NO_MATCH, SKIPPED = "nothing matched", "not matched, because reuse saved no time before"
RESTING = "not compared, because the frames before differed"
NO_SAVING = "reuse would save no time"


@dataclass(frozen=True, slots=True, eq=False)
class VideoResult:
    """Outputs of a network for a frame, and how they were computed.

    Attributes
    ----------
    number : int
        Number of the frame, from 0.
    outputs : mapping of str to ndarray
        By name, read-only.
    whole : str
        Reason why the frame was executed whole; empty if it was not.
    matched : float
        Share of the blocks that were found in the reference.
    recomputed : float
        Recomputed share of the network's expected time.
    offset : tuple of int
        Rows, columns: motion of the picture, in pixels of the network's input.
    blocks : ndarray, (R, C) bool
        Blocks that were reused.
    match_ms, network_ms : float
        Time of preparing and matching the frame; time of everything else.
    deviation : float or None
        Deviation of the outputs with reuse from these outputs; None if not measured for this frame.
    window : tuple of float
        Top, left, bottom, right of the network's window, as shares of the frame's sides.
    """

    number: int
    outputs: Mapping[str, Tensor]
    whole: str
    matched: float
    recomputed: float
    offset: Offset
    blocks: NDArray[np.bool_]
    match_ms: float
    network_ms: float
    deviation: float | None
    window: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
