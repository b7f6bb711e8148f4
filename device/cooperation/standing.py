"""Which peers are worth asking for a model: those that lie are not asked again, those that fail rest."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from nearsight.device.cooperation.rules import CooperationRules
from nearsight.device.peers.node_id import NodeId

_MOST_REMEMBERED = 4096


class PeerStanding:
    """What was experienced with peers. Not thread-safe.

    Parameters
    ----------
    rules : CooperationRules
        How long a peer that failed rests.
    """

    def __init__(self, rules: CooperationRules) -> None:
        self._rules = rules
        self._failed: OrderedDict[NodeId, tuple[int, float]] = OrderedDict()
        self._liars: OrderedDict[NodeId, tuple[str, bytes]] = OrderedDict()

    @property
    def liars(self) -> tuple[NodeId, ...]:
        """Peers that handed out a wrong model."""
        return tuple(self._liars)

    def may_be_asked(self, node: NodeId, now_s: float) -> bool:
        """Whether a model of this peer is worth the wait."""
        _, rests_until_s = self._failed.get(node, (0, -math.inf))
        return node not in self._liars and now_s >= rests_until_s

    def answered(self, node: NodeId) -> None:
        """It gave what was asked for."""
        self._failed.pop(node, None)

    def failed(self, node: NodeId, now_s: float) -> None:
        """It did not answer."""
        times, _ = self._failed.pop(node, (0, 0.0))
        rest_s = min(self._rules.longest_rest_s, self._rules.rest_s * 2.0 ** min(times, 16))
        self._failed[node] = (times + 1, now_s + rest_s)
        if len(self._failed) > _MOST_REMEMBERED:
            self._failed.popitem(last=False)

    def lied(self, node: NodeId, object_id: str, digest: bytes) -> None:
        """It handed out something else than the model of this object with this digest."""
        self._liars[node] = (object_id, digest)
        if len(self._liars) > _MOST_REMEMBERED:
            self._liars.popitem(last=False)

    def forgive(self, was_mistaken: Callable[[str, bytes], bool]) -> None:
        """Trust those again whom only an outdated digest spoke against."""
        for node, (object_id, digest) in list(self._liars.items()):
            if was_mistaken(object_id, digest):
                del self._liars[node]
