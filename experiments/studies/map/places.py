"""The operating points of the map: the four variables of section 6.2.1, and the machines as a fifth.

Every combination is played. The dissertation varied one variable at a time, with one type of phone and one
type of edge. The speed of the two determines which of them should recognise a photo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.cachier.scale.machines import NEXUS_7
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, Amount, OperatingPoint
from nearsight.experiments.twin.cost_model import Hardware

_VISITORS, _SECTIONS, _CLASSES = (1, 10, 40), (1, 3, 9), (500, 2000)
_NETWORKS = ("Slow", "baseline", "SuperFast")
_RUNS = 3
SLOW_EDGE = 4.0
"""Time of a core of the small edge over that of a core of table 6.1's edge."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Type of phones and edge."""

    phone_slowness: float
    """Time of a phone for a photo over that of a core of table 6.1's edge."""
    small_edge: bool
    """Whether the edge is one core, four times slower, as in a single-board computer; else table 6.1's edge.
    """

    def of(self, world: Hardware) -> Hardware:
        """Replace phones and edge of ``world``, whose phones are a Nexus 7; the cloud stays the same."""
        phones = replace(world, device_slowness=world.device_slowness * self.phone_slowness / NEXUS_7)
        if not self.small_edge:
            return phones
        return replace(phones, edge=1, edge_slowness=world.edge_slowness * SLOW_EDGE)


FAST_PHONE = 1.0
MACHINES: Mapping[str, Machines] = {
    "fast phones, edge of table 6.1": Machines(FAST_PHONE, small_edge=False),
    "Nexus 7, edge of table 6.1": Machines(NEXUS_7, small_edge=False),
    "fast phones, small edge": Machines(FAST_PHONE, small_edge=True),
    "Nexus 7, small edge": Machines(NEXUS_7, small_edge=True),
}
"""Machines by name. A fast phone takes as long as a core of table 6.1's edge, a Nexus 7 six times."""


@dataclass(frozen=True, slots=True)
class Place(OperatingPoint):
    """An operating point with its machines, a key of `MACHINES`."""

    machines: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Place:
        """The place of a row."""
        one = OperatingPoint.of(values)
        return cls(one.visitors, one.sections, one.classes, one.network, values["machines"])


@dataclass(frozen=True, slots=True)
class Grid:
    """The places that are played."""

    points: tuple[OperatingPoint, ...]
    """Operating points; each is played with all machines."""
    repeated: tuple[OperatingPoint, ...]
    """Points that are repeated with other traces, to measure the variation by chance."""
    machines: tuple[str, ...]
    """Keys of `MACHINES`."""
    amount: Amount
    """Number of runs of the repeated points, the first included; and length of the sessions."""

    @classmethod
    def of(cls, options: RunOptions) -> Grid:
        """The grid of a run."""
        if options.smoke:
            point = replace(BASELINE, visitors=2, sections=1, classes=50)
            return cls((point,), (point,), tuple(MACHINES)[:1], Amount(runs=2, seconds=8.0, crowd=20))
        return cls(
            tuple(OperatingPoint(*one) for one in product(_VISITORS, _SECTIONS, _CLASSES, _NETWORKS)),
            tuple(replace(BASELINE, visitors=visitors) for visitors in _VISITORS),
            tuple(MACHINES),
            Amount(options.runs or _RUNS, seconds=45.0, crowd=120),
        )

    def cells(self) -> list[dict[str, Any]]:
        """One cell per point and run, with all machines."""
        first = [(point, 1) for point in self.points]
        again = [(point, run) for run in range(2, self.amount.runs + 1) for point in self.repeated]
        return [{"point": point, "run": run} for point, run in first + again]
