"""Operating points and length of the measurements: the four variables of section 6.2.1 and the baseline.

One variable changes at a time; the others stay at the baseline. The dissertation's text does not list the
values of the figures' axes. The values here span the bounds of its table 6.4, and exceed them where our
faster classifier reaches its limits only later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.links.link import TABLE_6_3, LinkShape

TWIN, TESTBED = "twin", "testbed"
MEASURED, PAPER, AS_TESTBED = "measured", "paper", "testbed"
"""Costs of a twin; see `machines`."""

EXHIBITS_PER_SECTION = 44
BASELINE_NETWORK = "baseline"

NETWORKS: Mapping[str, LinkShape] = {
    **TABLE_6_3,
    BASELINE_NETWORK: LinkShape(rtt_ms=30.0, up_mbps=15.0, down_mbps=15.0),
}
"""Networks of table 6.3, slowest first, and the network of table 6.2."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One setting of all variables."""

    visitors: int = 5
    """Number of devices; each sends a photo per second while its visitor looks at an exhibit."""
    sections: int = 3
    """Number of rooms with 44 exhibits that one edge serves (6.2.5.1)."""
    classes: int = 500
    """Number of objects in the cloud's catalogue; at least those of the sections."""
    network: str = BASELINE_NETWORK
    """Link between edge and cloud, a key of `NETWORKS`."""

    def __post_init__(self) -> None:
        if min(self.visitors, self.sections) < 1:
            raise InvalidArgument(f"{self} has no visitors or no sections", advice="give at least 1 of each")
        if self.classes < self.objects:
            raise InvalidArgument(
                f"{self.sections} sections show {self.objects} objects, but there are {self.classes} classes",
                advice="give more classes",
            )
        if self.network not in NETWORKS:
            raise InvalidArgument(
                f"there is no network {self.network!r}", advice=f"choose one of: {', '.join(NETWORKS)}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the point of a cell's parameters or of a stored row."""
        visitors, sections, classes = (int(values[name]) for name in (VISITORS, SECTIONS, CLASSES))
        return cls(visitors, sections, classes, str(values[NETWORK]))

    def parameters(self) -> dict[str, Any]:
        """The values of all variables, as columns of a row."""
        return asdict(self)

    @property
    def objects(self) -> int:
        """Number of exhibits in the area of the edge."""
        return self.sections * EXHIBITS_PER_SECTION

    @property
    def link(self) -> LinkShape:
        """Link between edge and cloud."""
        return NETWORKS[self.network]

    def __str__(self) -> str:
        """Name of the point for file names, such as "v5-s3-c500-baseline"."""
        return f"v{self.visitors}-s{self.sections}-c{self.classes}-{self.network}"


BASELINE = OperatingPoint()
"""Table 6.2."""

VISITORS, SECTIONS, CLASSES, NETWORK = "visitors", "sections", "classes", "network"

VARIABLES: Mapping[str, tuple[OperatingPoint, ...]] = {
    VISITORS: tuple(replace(BASELINE, visitors=n) for n in (1, 2, 4, 5, 6, 8, 10, 20, 40, 80)),
    SECTIONS: tuple(replace(BASELINE, sections=n) for n in (1, 2, 3, 4, 5, 8, 11)),
    CLASSES: tuple(replace(BASELINE, classes=n) for n in (150, 300, 400, 500, 750, 1000, 2000)),
    NETWORK: tuple(replace(BASELINE, network=name) for name in NETWORKS),
}
"""The points of each variable's figures, in the order of the axis."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Size of the measurement."""

    runs: int
    """Number of runs, each with other traces."""
    seconds: float
    """Length of the replay [s]."""
    processes: int = 1
    """Number of cells that run at a time."""
    crowd: int = 180
    """Number of visitors with generated walks; as in the real traces (6.2.5)."""


_RUNS = 4
"""Each with other traces (6.2.7)."""
_SECONDS, _TESTBED_SECONDS = 60.0, 20.0
_ON_TESTBED = {
    VISITORS: (1, 5, 10),
    SECTIONS: (1, 3, 5),
    CLASSES: (150, 500, 1000),
    NETWORK: ("Slow", "baseline", "SuperFast"),
}
"""Fewer points on the testbed: it runs in real time, and all processes share one machine."""
_PAPER_DEVICES, _PAPER_OBJECTS = 10, 800
"""Limits of the dissertation's evaluation (6.2.6; 3.3.1); with its costs, larger systems are overloaded."""
_SMOKE_CROWD = 40
_SMOKE = replace(BASELINE, visitors=2, sections=1, classes=50)
_SMOKE_VALUES = {VISITORS: (1, 2), SECTIONS: (1,), CLASSES: (50,), NETWORK: ("Slow", "SuperFast")}


def amount_of(options: RunOptions) -> Amount:
    """Size of the measurement of a run."""
    if options.smoke:
        return Amount(1, 6.0, crowd=_SMOKE_CROWD)
    runs = options.runs or _RUNS
    if options.on == TESTBED:
        return Amount(runs, _TESTBED_SECONDS)
    seconds = _TESTBED_SECONDS if options.costs == AS_TESTBED else _SECONDS
    return Amount(runs, seconds, os.cpu_count() or 1)


def points_of(variable: str, options: RunOptions) -> tuple[OperatingPoint, ...]:
    """The points of a variable's figures."""
    if options.smoke:
        return tuple(replace(_SMOKE, **{variable: value}) for value in _SMOKE_VALUES[variable])  # type: ignore[arg-type]
    if TESTBED in {options.on, options.costs}:
        return tuple(
            point for point in VARIABLES[variable] if getattr(point, variable) in _ON_TESTBED[variable]
        )
    if options.costs == PAPER:
        return tuple(
            point
            for point in VARIABLES[variable]
            if point.visitors <= _PAPER_DEVICES and point.classes <= _PAPER_OBJECTS
        )
    return VARIABLES[variable]
