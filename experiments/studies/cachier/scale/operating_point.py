"""Where the system is measured: the four variables of section 6.2.1 and their baseline (table 6.2).

One variable changes at a time; the others stay at the baseline. The dissertation's figures do not print the
values that it took; those here span the bounds of its table 6.4, and go on beyond them where our faster
classifier only then comes to its limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.links.link import TABLE_6_3, LinkShape

EXHIBITS_PER_SECTION = 44
BASELINE_NETWORK = "baseline"

NETWORKS: Mapping[str, LinkShape] = MappingProxyType(
    {**TABLE_6_3, BASELINE_NETWORK: LinkShape(rtt_ms=30.0, up_mbps=15.0, down_mbps=15.0)}
)
"""Table 6.3, slowest first, and the network of table 6.2."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One setting of all variables.

    Attributes
    ----------
    visitors : int
        Devices, each of which sends a photo per second while its visitor looks at something.
    sections : int
        Rooms of 44 exhibits that one edge serves (6.2.5.1).
    classes : int
        Objects in the cloud's catalogue; at least those of the sections.
    network : str
        Between edge and cloud, a name in `NETWORKS`.
    """

    visitors: int = 5
    sections: int = 3
    classes: int = 500
    network: str = BASELINE_NETWORK

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

    @property
    def objects(self) -> int:
        """Exhibits in the area of the edge."""
        return self.sections * EXHIBITS_PER_SECTION

    @property
    def link(self) -> LinkShape:
        """The network between edge and cloud."""
        return NETWORKS[self.network]

    @property
    def key(self) -> str:
        """Names it in file names, such as "v5-s3-c500-baseline"."""
        return f"v{self.visitors}-s{self.sections}-c{self.classes}-{self.network}"


BASELINE = OperatingPoint()
"""Table 6.2."""

VISITORS, SECTIONS, CLASSES, NETWORK = "visitors", "sections", "classes", "network"

VARIABLES: Mapping[str, tuple[OperatingPoint, ...]] = MappingProxyType(
    {
        VISITORS: tuple(replace(BASELINE, visitors=n) for n in (1, 2, 4, 5, 6, 8, 10, 20, 40, 80)),
        SECTIONS: tuple(replace(BASELINE, sections=n) for n in (1, 2, 3, 4, 5, 8, 11)),
        CLASSES: tuple(replace(BASELINE, classes=n) for n in (150, 300, 400, 500, 750, 1000, 2000)),
        NETWORK: tuple(replace(BASELINE, network=name) for name in NETWORKS),
    }
)
"""The points of each variable's figures, in the order of the axis."""
