"""Sessions at an operating point, in the twin and on the testbed: one row of metrics per configuration.

Visitors walk as in section 6.2.5: four fifths of them taught the edge before, and some of the others have
devices. The same run number gives the same visitors and photos to all configurations.

On the testbed all processes share this machine, so devices are as fast as the edge, unlike in table 6.1.
Compare configurations there, and compare times only with a twin that shares one machine as well.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xxhash

from nearsight.experiments.framework.experiment import Row, RunOptions
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.tiers import CATALOGUE
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.scale.machines import Machines, machines_of
from nearsight.experiments.studies.cachier.scale.operating_point import MEASURED, Amount, OperatingPoint
from nearsight.experiments.studies.cachier.scale.session_numbers import link_errors, session_row
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.experiments.studies.profiles import Profiles, built_in_tiers
from nearsight.experiments.testbed.running import cut_catalogue
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.twin.cost_model import Hardware
from nearsight.experiments.twin.session import CONFIGURATIONS, TwinSession, TwinTiers
from nearsight.experiments.twin.visitors import generate_visitors

_MUSEUM = MuseumSettings(objects=1000, photos_per_object=2, unknown_photos=100)
_SMOKE_MUSEUM = MuseumSettings(objects=50, photos_per_object=2, unknown_photos=2)


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
        The operating point.
    configurations : sequence of str
        Names in `twin.session.CONFIGURATIONS`.
    run : int
        Number of the run; determines the traces.
    machines : Machines
        The tiers' machines, their costs, and the photos.
    seed : int
        Seed of all random numbers, together with the run.
    amount : Amount
        Length of the replay, and number of visitors with walks; four fifths of them teach the edge.
    unknown_share : float
        Share of the photos that show objects in no catalogue.

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
        played = session.play(name, with_workers(hardware, CONFIGURATIONS[name]))
        rows.append(session_row(point, name, run, played, cores, unknown_share))
    return rows


def twin_session(
    point: OperatingPoint, run: int, machines: Machines, seed: int, following: Following, crowd: int
) -> TwinSession:
    """Create the session that all configurations of a run share."""
    rng = np.random.default_rng([seed, xxhash.xxh32_intdigest(b"scale"), run])
    object_ids = [f"{number + 1:04d}" for number in range(point.classes)]
    visitors, transitions = generate_visitors(
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
        timeout_s=machines.timeout_s,
        queue_timeout_s=machines.queue_timeout_s,
        seconds=following.seconds,
    )


def with_workers(hardware: Hardware, tiers: TwinTiers) -> TwinTiers:
    """Give the edge as many workers as it has cores, like the cloud."""
    if tiers.edge is None:
        return tiers
    server = tiers.edge.server.model_copy(update={"workers": hardware.edge})
    return replace(tiers, edge=tiers.edge.model_copy(update={"server": server}))


def play_on_testbed(
    point: OperatingPoint,
    configurations: Sequence[str],
    run: int,
    options: RunOptions,
    amount: Amount,
    unknown_share: float,
) -> list[Row]:
    """Play configurations on the same traces with real daemons and devices, one after the other.

    As `play_on_twin`; the configurations are names in `testbed.campaign.BUILT_IN`, and ``options`` have the
    folder of the museums.
    """
    museum = TaughtMuseum(options, replace(_SMOKE_MUSEUM if options.smoke else _MUSEUM, seed=options.seed))
    folder = museum.testbed("scale-smoke" if options.smoke else "scale")
    rng = options.rng("scale", run)
    visits = generate_visits(rng, sections=point.sections, visitors=amount.crowd)
    following = Following(point.visitors, amount.seconds, unknown_share)
    walks = museum.session(folder, visits, following, point.link, rng, f"traces/{point}-run{run}")
    database = folder / f"cloud-{point.classes}.db"
    cut_catalogue(museum.database, database, catalogue=CATALOGUE, keep=set(), classes=point.classes)
    session = replace(walks, database=database, counts_bytes=True)
    costs, profiles = machines_of(replace(options, costs=MEASURED)).costs, Profiles.in_folder(folder)
    costs.edge.save(profiles.edge)
    costs.device.save(profiles.adaptive)
    cores = dict.fromkeys(("edge", "cloud"), os.cpu_count() or 1)
    rows: list[Row] = []
    for name in configurations:
        played = session.play({name: built_in_tiers(name, profiles)})[name]
        row = session_row(point, name, run, played, cores, unknown_share)
        rows.append({**row, **link_errors(played.link)})
    return rows
