"""Sessions at an operating point in the twin: one row of numbers per configuration.

Visitors walk as in section 6.2.5: four fifths of them taught the edge before, and some of the others are
followed. The same run number gives the same visitors and photos to all configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xxhash

from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.scale.machines import Machines
from nearsight.experiments.studies.cachier.scale.operating_point import Amount, OperatingPoint
from nearsight.experiments.studies.cachier.scale.session_numbers import Usage, session_row
from nearsight.experiments.twin.session import CONFIGURATIONS, Hardware, TwinSession, TwinTiers
from nearsight.experiments.twin.visitors import generated


def play_on_twin(
    point: OperatingPoint,
    configurations: Sequence[str],
    run: int,
    machines: Machines,
    seed: int,
    amount: Amount,
    unknown_share: float = 0.0,
) -> list[Row]:
    """Play some configurations of section 6.2.3 on the same traces.

    Parameters
    ----------
    point : OperatingPoint
        Where.
    configurations : sequence of str
        Names in `twin.session.CONFIGURATIONS`.
    run : int
        Which traces.
    machines : Machines
        The tiers' machines, what everything costs there, and the photos.
    seed : int
        Everything random follows from it and the run.
    amount : Amount
        How long visitors are followed, and how many there are walks of; four fifths of them teach the edge.
    unknown_share : float
        Share of the photos that show what is in no catalogue.

    Returns
    -------
    list of Row
        One per configuration; see `session_numbers.session_row`.
    """
    following = Following(point.visitors, amount.seconds, unknown_share)
    session = twin_session(point, run, machines, seed, following, amount.crowd)
    hardware, rows = machines.hardware, []
    cores = {"edge": hardware.shared or hardware.edge, "cloud": hardware.shared or hardware.cloud}
    for name in configurations:
        played = session.play(name, _on(hardware, CONFIGURATIONS[name]))
        used = Usage(amount.seconds, played.cpu, cores, played.up_bytes, played.down_bytes)
        rows.append(session_row(point, name, run, played.rows, used, unknown_share))
    return rows


def twin_session(
    point: OperatingPoint, run: int, machines: Machines, seed: int, following: Following, crowd: int
) -> TwinSession:
    """What is the same for all configurations of a run."""
    rng = np.random.default_rng([seed, xxhash.xxh32_intdigest(b"scale"), run])
    object_ids = [f"{number + 1:04d}" for number in range(point.classes)]
    visitors, transitions = generated(
        machines.photos.source(rng), object_ids, following, sections=point.sections, crowd_size=crowd, rng=rng
    )
    return TwinSession(
        object_ids,
        visitors,
        machines.costs,
        point.link,
        transitions,
        hardware=machines.hardware,
        seed=seed * 1000 + run,
    )


def _on(hardware: Hardware, tiers: TwinTiers) -> TwinTiers:
    """An edge whose workers are as many as its cores, as the cloud's are."""
    if tiers.edge is None:
        return tiers
    server = tiers.edge.server.model_copy(update={"workers": hardware.edge})
    return replace(tiers, edge=tiers.edge.model_copy(update={"server": server}))
