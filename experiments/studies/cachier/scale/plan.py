"""How much is measured for a figure of chapter 6: on the twin, on the testbed, and in a smoke run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.cachier.scale.operating_point import (
    BASELINE,
    CLASSES,
    NETWORK,
    SECTIONS,
    VARIABLES,
    VISITORS,
    OperatingPoint,
)
from nearsight.experiments.studies.cachier.scale.twin_runs import CROWD, RUNS, SECONDS

TWIN, TESTBED = "twin", "testbed"
MEASURED, PAPER, AS_TESTBED = "measured", "paper", "testbed"
"""Costs of a twin; see `machines`."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured.

    Attributes
    ----------
    runs : int
        Each with other traces.
    seconds : float
        How long visitors are followed.
    processes : int
        Cells at a time.
    crowd : int
        Visitors that there are walks of.
    """

    runs: int
    seconds: float
    processes: int = 1
    crowd: int = CROWD


_TESTBED_SECONDS = 20.0
_ON_TESTBED = {
    VISITORS: (1, 5, 10),
    SECTIONS: (1, 3, 5),
    CLASSES: (150, 500, 1000),
    NETWORK: ("Slow", "baseline", "SuperFast"),
}
"""Everything runs in real time there, and all processes share one machine."""
_PAPER_DEVICES, _PAPER_OBJECTS = 10, 800
"""The dissertation had no more (6.2.6; 3.3.1), and with its costs everything breaks down beyond."""
_SMOKE_CROWD = 40
_SMOKE = replace(BASELINE, visitors=2, sections=1, classes=50)
_SMOKE_VALUES = {VISITORS: (1, 2), SECTIONS: (1,), CLASSES: (50,), NETWORK: ("Slow", "SuperFast")}


def amount_of(options: RunOptions) -> Amount:
    """Of a run."""
    if options.smoke:
        return Amount(1, 6.0, crowd=_SMOKE_CROWD)
    runs = options.runs or RUNS
    if options.on == TESTBED:
        return Amount(runs, _TESTBED_SECONDS)
    seconds = _TESTBED_SECONDS if options.costs == AS_TESTBED else SECONDS
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
