"""Simulates visitors in a museum; the traces have the properties of the dissertation's real traces.

A visitor goes from an exhibit to another that is near, attractive and not yet seen. The next exhibit depends
on the current one: a first-order Markov model predicts it best (Cachier dissertation, figure 6.3). The
dissertation's section has 44 exhibits in one room (figure 6.1). It is repeated to get more objects: the same
layout with other exhibits (6.2.5.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.visits import Visit

_ZIPF_EXPONENT = 0.8
"""The attractiveness of the r-th most popular exhibit is proportional to r ** -0.8."""
_SPACING_M = 1.6
"""Distance between neighbouring exhibits on a wall."""
_REACH_M = 1.3
"""Distance over which the attraction of an exhibit falls to 1/e."""
_SEEN_FACTOR = 0.25
"""Factor of the attraction of an exhibit after it was seen."""
_STOPS, _STOPS_SIGMA = 34.0, 0.45
"""Number of exhibits at which a visitor stops: log-normal, with this median."""
_DWELL_S, _DWELL_SIGMA = 14.0, 0.9
"""Time before one exhibit: log-normal, with this median."""
_WALK_M_PER_S = 0.9
"""Walking speed between exhibits."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorPlan:
    """Floor plan of one section."""

    positions_m: NDArray[np.float64]
    """Position of a visitor who looks at each exhibit, (N, 2) float64; x and y in metres."""
    attractiveness: NDArray[np.float64]
    """Relative attractiveness, (N,) float64; sums to 1."""

    def __len__(self) -> int:
        return len(self.positions_m)

    @property
    def distances_m(self) -> NDArray[np.float64]:
        """Distances between exhibits, (N, N)."""
        apart = self.positions_m[:, None] - self.positions_m[None]
        return np.asarray(np.hypot(apart[..., 0], apart[..., 1]))


def draw_floor_plan(exhibits: int, rng: np.random.Generator) -> FloorPlan:
    """Generate a floor plan: rows of exhibits along walls, with popular exhibits at random places.

    Parameters
    ----------
    exhibits : int
        N, at least 1.
    rng : Generator

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
    # Every second row runs in the opposite direction: it starts next to the end of the row before.
    columns = np.where(rows % 2 == 0, columns, per_row - 1 - columns)
    grid = np.stack([columns * _SPACING_M, rows * _SPACING_M * 2.2], axis=1)
    ranks = rng.permutation(exhibits) + 1.0
    attractiveness = ranks**-_ZIPF_EXPONENT
    positions_m = grid + rng.normal(0, _SPACING_M * 0.2, grid.shape)
    return FloorPlan(positions_m, attractiveness / attractiveness.sum())


def generate_visits(
    rng: np.random.Generator,
    *,
    sections: int = 3,
    exhibits_per_section: int = 44,
    visitors: int = 180,
    exhibits: Sequence[str] | None = None,
    open_s: float = 8 * 3600.0,
) -> tuple[Visit, ...]:
    """Generate the visits of all visitors, in the order of visitors and times.

    Parameters
    ----------
    rng : Generator
    sections : int
        Rooms with the same layout, each with its own exhibits; visitors are divided equally among them.
    exhibits_per_section : int
    visitors : int
    exhibits : sequence of str, optional
        Names, section by section. Default: the ids of a generated museum's first objects, 0001, 0002, …
    open_s : float
        Arrivals of visitors are uniformly distributed over this time.

    Raises
    ------
    InvalidArgument
        If a number is below 1, or names are missing or not unique.
    """
    if min(sections, exhibits_per_section, visitors) < 1:
        raise InvalidArgument("traces need at least one section, exhibit and visitor")
    count = sections * exhibits_per_section
    names = list(exhibits) if exhibits is not None else [f"{number + 1:04d}" for number in range(count)]
    if len(set(names)) != len(names) or len(names) < count:
        raise InvalidArgument(
            f"{sections} sections of {exhibits_per_section} need {count} different exhibits, "
            f"got {len(set(names))}"
        )
    plan = draw_floor_plan(exhibits_per_section, rng)
    pull = _pull(plan)
    digits = max(3, len(str(visitors)))
    visits: list[Visit] = []
    for visitor in range(visitors):
        first = visitor % sections * exhibits_per_section
        places = names[first : first + exhibits_per_section]
        visits.extend(_walk(f"visitor-{visitor + 1:0{digits}d}", places, plan, pull, open_s, rng))
    return tuple(visits)


def _pull(plan: FloorPlan) -> NDArray[np.float64]:
    """Attraction of each exhibit (column) for a visitor before another exhibit (row), (N, N)."""
    order = np.arange(len(plan))
    ahead = np.tanh((order[None] - order[:, None]) / 2)
    pull = plan.attractiveness**0.7 * np.exp(-plan.distances_m / _REACH_M + ahead)
    np.fill_diagonal(pull, 0)
    return np.asarray(pull)


def _walk(
    visitor: str,
    places: Sequence[str],
    plan: FloorPlan,
    pull: NDArray[np.float64],
    open_s: float,
    rng: np.random.Generator,
) -> list[Visit]:
    distances_m = plan.distances_m
    stops = max(2, round(_STOPS * np.exp(rng.normal(0, _STOPS_SIGMA))))
    now_s = float(rng.uniform(0, open_s))
    interest = np.ones(len(plan))
    at = int(rng.choice(min(5, len(plan))))
    visits: list[Visit] = []
    for _ in range(stops):
        dwell_s = max(1.0, _DWELL_S * float(np.exp(rng.normal(0, _DWELL_SIGMA))))
        visits.append(Visit(visitor, places[at], round(now_s, 1), round(now_s + dwell_s, 1)))
        interest[at] = _SEEN_FACTOR
        chances = pull[at] * interest
        if not chances.any():
            break
        following = int(rng.choice(len(plan), p=chances / chances.sum()))
        now_s += dwell_s + float(distances_m[at, following]) / _WALK_M_PER_S
        at = following
    return visits
