"""What the package ``kademlia`` lets one choose; to name it needs no such package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KademliaSettings:
    """Of one node.

    Attributes
    ----------
    k : int
        Size of a bucket, and to how many nodes a value is stored.
    alpha : int
        How many nodes a lookup asks at once.
    """

    k: int = 20
    alpha: int = 3
