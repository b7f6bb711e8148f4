"""Scenario of the demo: the baseline of the dissertation's evaluation (table 6.2), or a smaller one."""

from __future__ import annotations

from dataclasses import dataclass, field

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.links.link import LinkShape

ONLY_CLOUD = "only-cloud"
EDGE_CACHE = "edge-cache"
ALONE = "without-cloud"
COMPARED = "edge-cache-compared"
CONFIGURATIONS = (ONLY_CLOUD, EDGE_CACHE)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings that determine one demo completely."""

    objects: int = 500
    """Exhibits of the museum, all in the cloud's catalogue."""
    sections: int = 3
    exhibits_per_section: int = 44
    """Sections of the museum, and exhibits on show in each."""
    visitors: int = 5
    """Devices, each with one process and one photo per second."""
    seconds: float = 45.0
    """Length of the replay of each configuration [s]."""
    alone: float = 20.0
    """Time for which the replay with the edge cache continues after the cloud was killed [s]; 0: the cloud is
    not killed."""
    photos_per_exhibit: int = 8
    """Number of different photos that visitors take of each exhibit."""
    unknown_share: float = 0.08
    """Share of photos that show objects outside the catalogue."""
    unknown_photos: int = 40
    """Number of different photos of such objects."""
    link: LinkShape = field(default_factory=lambda: LinkShape(rtt_ms=30.0, up_mbps=15.0, down_mbps=15.0))
    """Link between the building and the cloud."""
    timeout_s: float = 5.0
    """Deadline of each request [s]."""
    seed: int = 1
    """Seed of everything."""
    edge: tuple[str, ...] = ()
    """Settings of the edge, each KEY=VALUE, in addition to those of the demo."""
    compared: tuple[str, ...] = ()
    """Further settings of a second edge, which is run for comparison; empty: no such edge."""

    def __post_init__(self) -> None:
        if min(self.objects, self.sections, self.exhibits_per_section, self.visitors) < 1:
            raise InvalidArgument("a demo needs at least one object, section, exhibit and visitor")
        if self.on_show > self.objects:
            raise InvalidArgument(
                f"{self.on_show} exhibits on show need as many objects, got {self.objects}",
                advice=f"give --objects {self.on_show} or more",
            )
        if not (self.seconds > 0 and self.alone >= 0):
            raise InvalidArgument(f"a replay cannot last {min(self.seconds, self.alone):g} s")

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names of the configurations, in the order of running."""
        return (*CONFIGURATIONS, COMPARED) if self.compared else CONFIGURATIONS

    @property
    def judged(self) -> bool:
        """Whether the demo is at least as large as the default, for which the targets were set."""
        return (
            self.seconds >= FULL.seconds and self.objects >= FULL.objects and self.visitors >= FULL.visitors
        )

    @property
    def on_show(self) -> int:
        """Number of exhibits on show to visitors."""
        return self.sections * self.exhibits_per_section


FULL = Scenario()
QUICK = Scenario(objects=80, exhibits_per_section=20, seconds=8.0, alone=4.0, unknown_photos=10)
