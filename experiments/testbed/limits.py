"""How much of a machine a node gets: the machines of the dissertation (table 6.1) as shares of today's cores.

The dissertation's cores were slower than today's. A profile says how many of this machine's cores stand for
theirs. Limits are held by the kernel's cgroups, which `agent` sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.errors import ConfigurationError

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """What a node may use.

    Attributes
    ----------
    cpus : float
        Cores of the machine that it runs on; 0: all.
    memory_mb : int
        MiB of memory; 0: all. A process beyond that is killed by the kernel.
    """

    cpus: float = 0.0
    memory_mb: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.cpus < float("inf") or 0 < self.cpus < 0.02:
            raise ConfigurationError(
                f"a node cannot have {self.cpus:g} CPUs", advice="give at least 0.02, or 0 for all"
            )
        if self.memory_mb < 0 or 0 < self.memory_mb < 64:
            raise ConfigurationError(
                f"a node cannot have {self.memory_mb} MiB of memory", advice="give at least 64, or 0 for all"
            )

    @property
    def limited(self) -> bool:
        """Whether anything is limited."""
        return bool(self.cpus or self.memory_mb)

    def order(self, group: str) -> dict[str, object]:
        """What the agent is told."""
        return {"group": group, "cpus": self.cpus, "memory_bytes": self.memory_mb * MEBIBYTE}


PROFILES = MappingProxyType(
    {
        "nexus7": NodeProfile(cpus=0.5, memory_mb=2048),
        "edge-pc": NodeProfile(cpus=4.0, memory_mb=8192),
        "cloud-server": NodeProfile(cpus=12.0, memory_mb=32768),
    }
)
"""Table 6.1: memory as there; CPUs as cores of a current PC. Of server and PC the physical cores count; half
a core for the four slow ones of a Nexus 7 is an estimate. An inventory may say otherwise."""


def find_profile(name: str, own: dict[str, NodeProfile]) -> NodeProfile:
    """A profile of the inventory or of table 6.1.

    Raises
    ------
    ConfigurationError
        If there is none of that name.
    """
    known = {**PROFILES, **own}
    if name not in known:
        raise ConfigurationError(f"there is no profile {name!r}", advice=f"use one of {', '.join(known)}")
    return known[name]
