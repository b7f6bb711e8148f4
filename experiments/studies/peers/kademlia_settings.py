"""What the package ``kademlia`` lets one choose; to name it needs no such package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KademliaSettings:
    """Of one node.

    Attributes
    ----------
    k : int
        Size of a bucket; for the package that is also to how many nodes a value is stored.
    alpha : int
        How many nodes a lookup asks at once.
    copies : int
        To how many nodes a value is stored, if not k: the dissertation calls k the size of a bucket, by which
        every node knows all others (6.8.1), and says nothing of copies. 0: k, as the package has it.
    """

    k: int = 20
    alpha: int = 3
    copies: int = 0
