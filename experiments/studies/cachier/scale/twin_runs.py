"""Sessions at an operating point in the twin: one row of numbers per configuration.

Visitors walk as in section 6.2.5: four fifths of them taught the edge before, and some of the others are
followed. The same run number gives the same visitors and photos to all configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.scale.operating_point import OperatingPoint
from nearsight.experiments.studies.cachier.scale.photo_kind import PhotoKind
from nearsight.experiments.studies.cachier.scale.session_numbers import Usage, session_row
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.session import (
    CONFIGURATIONS,
    Hardware,
    TwinOutcome,
    TwinSession,
    TwinTiers,
)
from nearsight.experiments.twin.visitors import generated

UNKNOWN_SHARE = 0.0
"""As in the dissertation: every photo shows an exhibit of the sections (6.2.5)."""
SECONDS = 60.0
CROWD = 180
"""Visitors of the real traces (6.2.5)."""
RUNS = 4
"""Each with other traces (6.2.7)."""


@dataclass(frozen=True, slots=True)
class Visiting:
    """What visitors do.

    Attributes
    ----------
    following : Following
        The devices.
    photos : PhotoKind
    crowd : int
        Visitors that there are walks of.
    """

    following: Following
    photos: PhotoKind
    crowd: int = CROWD


def play_on_twin(  # noqa: PLR0913 - an operating point, and what it is played with
    point: OperatingPoint,
    configurations: Sequence[str],
    run: int,
    costs: CostModel,
    hardware: Hardware,
    *,
    seed: int = 1,
    seconds: float = SECONDS,
    photos: PhotoKind | None = None,
    unknown_share: float = UNKNOWN_SHARE,
    crowd: int = CROWD,
) -> list[Row]:
    """Play some configurations of section 6.2.3 on the same traces.

    Parameters
    ----------
    point : OperatingPoint
        Where.
    configurations : sequence of str
        Names in `simulation.session.CONFIGURATIONS`.
    run : int
        Which traces.
    costs : CostModel
        What everything costs on the machine of the profiles.
    hardware : Hardware
        The tiers' machines.
    seed : int
        Everything random follows from it and the run.
    seconds : float
        How long visitors are followed.
    photos : PhotoKind, optional
        Default: as the profiles of ``costs`` say.
    unknown_share : float
        Share of the photos that show what is in no catalogue.
    crowd : int
        Visitors that there are walks of; four fifths of them teach the edge.

    Returns
    -------
    list of Row
        One per configuration; see `session_numbers.session_row`.
    """
    following = Following(point.visitors, seconds, unknown_share)
    visiting = Visiting(following, photos or PhotoKind.of(costs), crowd)
    session = twin_session(point, run, costs, hardware, visiting, seed)
    rows = []
    for name in configurations:
        outcome = session.play(name, _on(hardware, CONFIGURATIONS[name]))
        used = usage(outcome, hardware, seconds)
        rows.append(session_row(point, name, run, outcome.rows, used, unknown_share))
    return rows


def twin_session(
    point: OperatingPoint,
    run: int,
    costs: CostModel,
    hardware: Hardware,
    visiting: Visiting,
    seed: int,
) -> TwinSession:
    """What is the same for all configurations of a run."""
    rng = np.random.default_rng([seed, xxhash.xxh32_intdigest(b"scale"), run])
    object_ids = [f"{number + 1:04d}" for number in range(point.classes)]
    visitors, transitions = generated(
        visiting.photos.source(rng),
        object_ids,
        visiting.following,
        sections=point.sections,
        crowd_size=visiting.crowd,
        rng=rng,
    )
    return TwinSession(
        object_ids, visitors, costs, point.link, transitions, hardware=hardware, seed=seed * 1000 + run
    )


def usage(outcome: TwinOutcome, hardware: Hardware, seconds: float) -> Usage:
    """What a played session used, in the form of `session_numbers`."""
    cores: Mapping[str, int] = {
        "edge": hardware.shared or hardware.edge,
        "cloud": hardware.shared or hardware.cloud,
    }
    return Usage(seconds, outcome.cpu, cores, outcome.up_bytes, outcome.down_bytes)


def _on(hardware: Hardware, tiers: TwinTiers) -> TwinTiers:
    """An edge whose workers are as many as its cores, as the cloud's are."""
    if tiers.edge is None:
        return tiers
    server = tiers.edge.server.model_copy(update={"workers": hardware.edge})
    return replace(tiers, edge=tiers.edge.model_copy(update={"server": server}))
