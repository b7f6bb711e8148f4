"""Offline analyses of a study's tiers, made on the same machine before the tiers start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.profiling.analysis import analyse
from nearsight.experiments.profiling.measuring import (
    PreparedData,
    ProfilingPlan,
    fit_profile,
    measure,
    no_progress,
    prepare,
)
from nearsight.experiments.rig.peer_group import free_udp_port
from nearsight.experiments.rig.session import Tiers
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.experiments.testbed.campaign import BUILT_IN


@dataclass(frozen=True, slots=True)
class ProfileAmount:
    """Size of an offline analysis; a part of an experiment's plan."""

    sizes: tuple[int, ...]
    """Cache sizes [objects]."""
    subsets: int
    """Number of random subsets per size."""
    queries: int
    """Number of photos of objects in the subset; as many photos of other objects are used."""

    def plan(self, seed: int) -> ProfilingPlan:
        """Plan of an analysis of this size with random choices from ``seed``."""
        return ProfilingPlan(self.sizes, self.subsets, self.queries, self.queries, seed=seed)


DEVICE_AMOUNT = ProfileAmount((1, 4, 8, 16, 32), subsets=4, queries=12)
"""For devices, which hold tens of objects."""


LSH, OURS = "flann-lsh", "auto"
BACKEND_NAMES = {LSH: "LSH of FLANN, as in the paper", OURS: "our default"}
PIPELINES: Mapping[str, Mapping[str, str | bool]] = {
    LSH: {"backend": LSH, "early_stop": False},
    OURS: {"backend": OURS},
}
"""Recognition settings by backend. The paper's searches with all features of every photo."""


class EdgeProfiles:
    """Offline analyses of one museum during a run; each is made on first use."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._prepared: PreparedData | None = None

    def settings(
        self, museum: TaughtMuseum, name: str, backend: str, amount: ProfileAmount
    ) -> dict[str, object]:
        """Settings of an edge with one of the `PIPELINES`; ``name`` identifies its analysis."""
        path, pipeline = museum.folder / f"profile-{name}.json", PIPELINES[backend]
        if path not in self._paths:
            if self._prepared is None:
                self._prepared = prepare(museum.dataset, RecognitionSettings(), no_progress)
            recognition = RecognitionSettings.model_validate(pipeline)
            rows = measure(self._prepared, amount.plan(museum.seed), recognition, no_progress)
            fit_profile(rows, self._prepared, recognition, time.time()).save(path)
            self._paths.add(path)
        return {
            **{f"recognition.{key}": value for key, value in pipeline.items()},
            "cache.profile": path,
        }


def measure_edge(dataset: Dataset, amount: ProfileAmount, seed: int) -> CacheProfile:
    """Make the offline analysis of an edge on this machine (dissertation, 3.3.1), with default settings."""
    (profile,), _ = analyse(dataset, RecognitionSettings(), amount.plan(seed))
    return profile


@dataclass(frozen=True, slots=True)
class Profiles:
    """Files of the offline analyses of the edge, and of devices for every number of features."""

    edge: Path
    adaptive: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Profiles:
        """Paths of the files in the folder of an experiment's logs."""
        return cls(folder / "profile-edge.json", folder / "profile-adaptive.json")


def measure_profiles(
    dataset: Dataset, feature_counts: tuple[int, ...], amount: ProfileAmount, seed: int, folder: Path
) -> Profiles:
    """Make the offline analyses of this machine for the edge (3.3.1) and devices (4.5.2), from the same rows.

    Devices and edge run on the same machine here, so the edge uses the curve of 800 features.
    """
    settings = RecognitionSettings()
    adaptive, _ = analyse(dataset, settings, amount.plan(seed), features=feature_counts)
    profiles = {one.query_features: one for one in adaptive}
    folder.mkdir(parents=True, exist_ok=True)
    found = Profiles.in_folder(folder)
    profiles[settings.query_features].save(found.edge)
    DeviceProfile(profiles=adaptive).save(found.adaptive)
    return found


def built_in_tiers(name: str, profiles: Profiles) -> Tiers:
    """Settings of one of the testbed's `BUILT_IN` configurations, with profiles of this machine."""
    spec = BUILT_IN[name]
    edge = {"cache.profile": profiles.edge, **spec.edge} if spec.edges else None
    device = {**spec.device, "recognizer.prefetch.profile": profiles.adaptive}
    return Tiers(edge, device | (sharing_settings() if "recognizer.peers.enabled" in device else {}))


def sharing_settings() -> dict[str, object]:
    """Settings of devices that cooperate on one machine; the short periods let them find each other early."""
    return {
        "recognizer.peers.enabled": True,
        "recognizer.peers.beacon_port": free_udp_port(),
        "recognizer.peers.period_s": 1.0,
        "recognizer.peers.departure_s": 5.0,
    }
