"""Notices that this device has got another address: then all its connections are dead, and nobody says so."""

from __future__ import annotations

import ipaddress

from nearsight.device.peers.addresses import is_unspecified, own_networks

LOOK_EVERY_S = 1.0


class OwnAddresses:
    """The IPv4 addresses of this machine, watched where peers are served on all of them.

    Parameters
    ----------
    host : str
        That is listened on.
    """

    def __init__(self, host: str) -> None:
        self._watched = is_unspecified(host)
        self._known: frozenset[ipaddress.IPv4Interface] = frozenset()
        self._looked_s = float("-inf")

    def changed(self, now_s: float) -> bool:
        """Whether they are others than before; looks once a second.

        A network that is merely down is no change: it may come back as it was.
        """
        if not self._watched or now_s < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        found = frozenset(own_networks())
        before = self._known
        if found:
            self._known = found
        return bool(before) and bool(found) and found != before
