"""What the visitors of one section of a museum ask for, as times and objects without photos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsight.experiments.traces.movement import Behaviour, generate_visits

_SECTION = 44
_VISITORS_AT_ONCE = 5
_VISIT_S = 850.0
_LEAD_S = 1800.0
"""The section is full when the clock starts."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What one section's visitors ask for.

    Attributes
    ----------
    times_s : ndarray, (R,) float64
        Since the crowd came to the section, rising.
    object_ids : tuple of str, length R
    shares : mapping of str to float
        Of each object among these requests.
    """

    times_s: np.ndarray[Any, np.dtype[np.float64]]
    object_ids: tuple[str, ...]
    shares: Mapping[str, float]


def section_requests(section: int, stay_s: float, rng: np.random.Generator) -> Requests:
    """One photo per second of each visitor while they look, from the moment when all are there.

    The second section is asked three times as long, so that also the slowest estimate gets there.
    """
    long_s = stay_s * (3 if section else 1)
    names = [f"{section * _SECTION + position + 1:04d}" for position in range(_SECTION)]
    visitors = max(1, round(_VISITORS_AT_ONCE * (long_s + _LEAD_S) / _VISIT_S))
    visits = generate_visits(
        rng,
        sections=1,
        exhibits_per_section=_SECTION,
        visitors=visitors,
        exhibits=names,
        behaviour=Behaviour(open_s=long_s + _LEAD_S),
    )
    asked = sorted(
        (visit.start_s + moment - _LEAD_S, visit.exhibit)
        for visit in visits
        for moment in range(max(1, math.floor(visit.duration_s)))
    )
    kept = [(at_s, name) for at_s, name in asked if 0 <= at_s < long_s]
    names_asked, counts = np.unique([name for _, name in kept], return_counts=True)
    shares = dict(zip(names_asked.tolist(), (counts / counts.sum()).tolist(), strict=True))
    return Requests(np.array([at_s for at_s, _ in kept]), tuple(name for _, name in kept), shares)
