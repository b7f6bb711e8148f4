"""The machines of a twin: costs, number of cores, and properties of the photos.

There are three sets. *measured*: the costs of this machine, fitted to its testbed by ``twin-validation``;
edge and cloud are as fast as this machine and have the cores of table 6.1, devices are Nexus 7. *testbed*:
the same costs with all processes on one machine, as on the testbed. *paper*: the dissertation's own
polynomials.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import xxhash

from nearsight.common.errors import CorruptStore, NotFound, SetupError
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.rpc.settings import ServerSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.profiling.analysis import FEATURE_COUNTS
from nearsight.experiments.studies.cachier.scale.operating_point import AS_TESTBED, PAPER
from nearsight.experiments.studies.cachier.scale.photos import EDGE_OBJECTS, PhotoKind, mark_of, measure_kind
from nearsight.experiments.studies.museums import MUSEUM, dataset_of
from nearsight.experiments.studies.profiles import (
    DEVICE_AMOUNT,
    ProfileAmount,
    measure_edge,
    measure_profiles,
)
from nearsight.experiments.twin.cost_model import (
    PAPER_HARDWARE,
    PAPER_PHOTO_BYTES,
    CostModel,
    Hardware,
    lookups_ms,
    paper_costs,
)

NEXUS_7 = 311 / 51.14
"""Constant of table 4.1 (Nexus 7, 800 features) over that of table 3.2 (LSH, Stanford), taken as the ratio of
extraction times."""
HARDWARE = Hardware(device_slowness=NEXUS_7)
"""Table 6.1."""
_EDGE_WORKERS = 2
"""The daemon's default."""
_PAPER_QUEUE_S = 5.0
"""The dissertation drops requests that were queued for longer (6.3). It states no timeout of devices; twice
this value has the same effect as none."""

_AMOUNT = ProfileAmount((1, 8, 33, 66, 132, 264, 400), subsets=4, queries=12)

M = TypeVar("M", CostModel, PhotoKind)


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines, their costs, and photos."""

    costs: CostModel
    hardware: Hardware
    photos: PhotoKind
    queue_timeout_s: float = ServerSettings().queue_timeout_s
    """Queue timeout of the tiers [s]."""
    timeout_s: float = RecognizerSettings().timeout_s
    """Timeout of the devices [s]."""

    @property
    def mark(self) -> str:
        """Identifies the costs, so that results with different costs are not mixed."""
        waits = f"{self.queue_timeout_s} {self.timeout_s}"
        world = f"{self.costs.model_dump_json()} {self.hardware} {self.photos.model_dump_json()} {waits}"
        return xxhash.xxh64_hexdigest(world.encode())


def machines_of(options: RunOptions) -> Machines:
    """Return the machines of a run.

    Raises
    ------
    NotFound
        If costs of this machine are requested and were not measured; see `measure_machines`.
    SetupError
        If they differ from those with which the run began, of which ``costs_mark`` is the mark.
    """
    if options.costs == PAPER:
        return paper_machines()
    cores = os.cpu_count() or 1
    shared = Hardware(cloud=cores, edge=_EDGE_WORKERS, shared=cores)
    hardware = shared if options.costs == AS_TESTBED else HARDWARE
    if options.smoke:
        costs = CostModel.assumed()
        return Machines(costs, hardware, PhotoKind.of(costs))
    costs = CostModel.load(_costs_path(options))
    found = Machines(costs, hardware, PhotoKind.load(_photos_path(options)))
    if options.costs_mark not in {"", found.mark}:
        raise SetupError(
            "the costs of this machine were measured again by another run",
            advice="measure all parts with the new costs: --fresh, or another folder with --out",
        )
    return found


def paper_machines() -> Machines:
    """Return the dissertation's machines.

    Its photos differ only in recall and size; all lookups take the times of its tables. The dissertation
    prints no spread of these times, and the spread of our photos does not apply. Our lookups verify
    candidates: few for a clear photo, all for an absent object. Its classifier compares with the descriptors
    of all objects.
    """
    costs = paper_costs()
    kind = PhotoKind.of(costs)
    known = float(costs.edge.curves(EDGE_OBJECTS).recall[-1])
    recall = (*kind.recall[:-1], (kind.recall[-1][0], known))
    median_bytes, spread = PAPER_PHOTO_BYTES
    photos = kind.model_copy(
        update={
            "recall": recall,
            "second_look": known,
            "median_bytes": median_bytes,
            "spread": spread,
        }
    )
    return Machines(
        costs,
        PAPER_HARDWARE,
        photos,
        queue_timeout_s=_PAPER_QUEUE_S,
        timeout_s=2 * _PAPER_QUEUE_S,
    )


def measure_machines(options: RunOptions, say: Callable[[str], None]) -> None:
    """Measure what `machines_of` needs if it was not measured before.

    Parameters
    ----------
    options : RunOptions
        Folder of museums and measurements, and seed.
    say : callable
        Called with a description of the current measurement, which takes minutes.
    """
    if options.costs == PAPER or options.smoke:
        return
    path, fitted = _costs_path(options), options.museums.parent / "testbed" / "twin" / "costs.json"

    @cache
    def dataset() -> Dataset:
        say("measuring the costs of this machine: a museum of 400 exhibits")
        return dataset_of(options, replace(MUSEUM, seed=options.seed))

    costs = _read(CostModel, path)
    if costs is None or (fitted.is_file() and fitted.stat().st_mtime > path.stat().st_mtime):
        costs = _measured_costs(options, dataset, fitted, say)
        costs.save(path)
    photos = _read(PhotoKind, _photos_path(options))
    if photos is None or photos.measured_over != mark_of(costs):
        measure_kind(dataset(), costs, options.seed, say).save(_photos_path(options))


def _measured_costs(
    options: RunOptions, dataset: Callable[[], Dataset], fitted: Path, say: Callable[[str], None]
) -> CostModel:
    """Costs fitted by twin-validation, if it was run on this machine; else from profiles alone."""
    try:
        costs = CostModel.load(fitted)
    except (NotFound, CorruptStore) as error:
        say(f"{error.message}: costs are profiled, not fitted to the testbed")
        profiles = measure_profiles(dataset(), FEATURE_COUNTS, DEVICE_AMOUNT, MUSEUM.seed, _folder(options))
        costs = CostModel(
            edge=CacheProfile.load(profiles.edge),
            device=DeviceProfile.load(profiles.adaptive),
            fitted_to="only profiles of this machine; twin-validation was not run",
        )
    if costs.edge.largest_k >= _AMOUNT.sizes[-1]:
        return costs
    say("measuring the costs of this machine: lookups among 1 to 400 objects")
    return widened(costs, measure_edge(dataset(), _AMOUNT, options.seed))


def _read(kind: type[M], path: Path) -> M | None:
    """Load a measurement; None if it is absent or unusable in this version, so that it must be repeated."""
    try:
        return kind.load(path)
    except (NotFound, CorruptStore):
        return None


def widened(fitted: CostModel, wide: CacheProfile) -> CostModel:
    """Extend costs that were fitted with profiles of few objects by a profile of many objects.

    The fit gives the time of a lookup among the objects of an edge and of the whole catalogue. The profile
    gives its growth between these and beyond. The edge's f(132) and the cloud's f(400) therefore stay
    unchanged.
    """
    if fitted.edge.largest_k >= wide.largest_k:
        return fitted
    catalogue = wide.largest_k
    before, now = (lookups_ms(profile, catalogue) for profile in (fitted.edge, wide))
    at_edge = float(before[EDGE_OBJECTS] / now[EDGE_OBJECTS])
    edge = wide.model_copy(
        update={
            "lookup_ms": tuple(at_edge * coefficient for coefficient in wide.lookup_ms),
            "measurements": tuple(
                one.model_copy(update={"lookup_ms": at_edge * one.lookup_ms}) for one in wide.measurements
            ),
            "extraction_ms": fitted.edge.extraction_ms,
        }
    )
    extraction_ms = fitted.edge.extraction_ms
    at_cloud = float((before[-1] + extraction_ms) / (at_edge * now[-1] + extraction_ms))
    work = fitted.cloud_work.model_copy(update={"scale": fitted.cloud_work.scale * at_cloud})
    return fitted.model_copy(update={"edge": edge, "cloud_work": work})


def _folder(options: RunOptions) -> Path:
    return options.museums.parent / "testbed" / "scale"


def _costs_path(options: RunOptions) -> Path:
    return _folder(options) / "costs.json"


def _photos_path(options: RunOptions) -> Path:
    return _folder(options) / "photos.json"
