"""Who fetches what nobody has yet: so that devices that want the same at once fetch it once (5.4.4.1).

The first that misses a key and says that it will produce it gets a claim for a while; others who ask
meanwhile are told how long to wait for it. If it does not deliver in that time, the next that asks gets the
claim.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nearsight.common.errors import InvalidArgument
from nearsight.device.peers.node_id import NodeId


@dataclass(frozen=True, slots=True)
class _Claim:
    claimant: NodeId
    ends_s: float


class Claims:
    """The claims on keys that this device is asked for. Not thread-safe.

    Parameters
    ----------
    lease_s : float
        How long a claim holds.
    max_claims : int
        Most claims at a time; the oldest makes room, at worst something is fetched twice.

    Raises
    ------
    InvalidArgument
        If one of them is not positive.
    """

    def __init__(self, lease_s: float, max_claims: int = 4096) -> None:
        if not (lease_s > 0 and max_claims > 0):
            raise InvalidArgument(f"a lease of {lease_s} s and {max_claims} claims must be positive")
        self._lease_s = lease_s
        self._max_claims = max_claims
        self._claims: OrderedDict[str, _Claim] = OrderedDict()  # in the order in which they end

    def __len__(self) -> int:
        return len(self._claims)

    def claim(self, key: str, claimant: NodeId, now_s: float) -> float:
        """Ask to produce a missing key.

        Returns
        -------
        float
            0 if the claimant is to produce it; else the seconds for which somebody else still is.

        Notes
        -----
        Who asks again while it has the claim, keeps it, but not for longer.
        """
        wait_s = self.wait_s(key, claimant, now_s)
        if wait_s == 0 and key not in self._claims:
            self._claims[key] = _Claim(claimant, now_s + self._lease_s)
            if len(self._claims) > self._max_claims:
                self._claims.popitem(last=False)
        return wait_s

    def wait_s(self, key: str, asker: NodeId, now_s: float) -> float:
        """How long the asker should wait for the key; 0 if nobody else is producing it."""
        self._expire(now_s)
        claim = self._claims.get(key)
        return claim.ends_s - now_s if claim is not None and claim.claimant != asker else 0.0

    def delivered(self, key: str) -> None:
        """The key was written: nobody needs to wait for it."""
        self._claims.pop(key, None)

    def gone(self, claimant: NodeId) -> None:
        """A node went away; the next that asks may take over."""
        for key in [key for key, claim in self._claims.items() if claim.claimant == claimant]:
            del self._claims[key]

    def _expire(self, now_s: float) -> None:
        while self._claims and next(iter(self._claims.values())).ends_s <= now_s:
            self._claims.popitem(last=False)
