"""A section of the museum: where its exhibits hang, and how much each one attracts.

The dissertation's section has 44 exhibits in one room (figure 6.1) and is repeated to get more objects: the
same layout, other exhibits (6.2.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

SPACING_M = 1.6
"""Between two exhibits that hang side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorPlan:
    """One section.

    Attributes
    ----------
    positions_m : ndarray, (N, 2) float64
        Where a visitor stands to look at each exhibit; x and y in metres.
    attractiveness : ndarray, (N,) float64
        Relative; sums to 1.
    """

    positions_m: NDArray[np.float64]
    attractiveness: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.positions_m)

    @property
    def distances_m(self) -> NDArray[np.float64]:
        """Between every two exhibits, (N, N)."""
        apart = self.positions_m[:, None] - self.positions_m[None]
        return np.asarray(np.hypot(apart[..., 0], apart[..., 1]))


def draw_floor_plan(exhibits: int, rng: np.random.Generator, *, zipf_exponent: float = 0.8) -> FloorPlan:
    """Walls and aisles with exhibits along them, popular ones anywhere.

    Parameters
    ----------
    exhibits : int
        N, at least 1.
    rng : Generator
    zipf_exponent : float
        Attractiveness of the r-th most popular exhibit is proportional to r ** -zipf_exponent.

    Raises
    ------
    InvalidArgument
        If there is no exhibit.
    """
    if exhibits < 1:
        raise InvalidArgument(f"a section needs at least one exhibit, got {exhibits}")
    per_row = max(1, round(np.sqrt(exhibits * 2)))
    rows = np.arange(exhibits) // per_row
    columns = np.arange(exhibits) % per_row
    # Every other row runs back: its start is next to the end of the one before, as on a walk past walls.
    columns = np.where(rows % 2 == 0, columns, per_row - 1 - columns)
    grid = np.stack([columns * SPACING_M, rows * SPACING_M * 2.2], axis=1)
    ranks = rng.permutation(exhibits) + 1.0
    attractiveness = ranks**-zipf_exponent
    positions_m = grid + rng.normal(0, SPACING_M * 0.2, grid.shape)
    return FloorPlan(positions_m, attractiveness / attractiveness.sum())
