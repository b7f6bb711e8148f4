"""Additions of this device to counters, kept so that nothing is lost and nothing counts twice.

A contribution says how much was added in all since it began, so sending it again changes nothing, and what
one message failed to carry the next one does. If others deleted the key meanwhile, what they had seen is
deleted with it; the rest begins a new contribution.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from nearsight.common.errors import InvalidArgument, Overloaded
from nearsight.device.peers.store.shared_store import LARGEST_COUNT
from nearsight.device.peers.store.stamps import NEVER, LamportClock, Stamp
from nearsight.device.peers.store.values import (
    MAX_COUNTERS_BYTES,
    Contribution,
    Counters,
    Entry,
    contribution_bytes,
)


@dataclass(slots=True)
class _Account:
    contributor: int
    began: Stamp
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    renewed: Stamp = NEVER
    ends_s: float | None = None


class PendingIncrements:
    """The contributions of one start of one device. Not thread-safe.

    Parameters
    ----------
    clock : LamportClock
        Stamps their beginnings.
    rng : random.Random
        Names the contributors: each contribution has a name of its own, so that none is mistaken for the
        continuation of another that is forgotten here.
    limit : int
        Most keys that are kept; those that everybody has are forgotten first.
    limit_bytes : int
        Most bytes of the counters of one key.
    """

    def __init__(
        self, clock: LamportClock, rng: random.Random, limit: int, limit_bytes: int = MAX_COUNTERS_BYTES
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def add(self, key: str, counts: Mapping[str, int], ends_s: float | None, now_s: float) -> Entry:
        """Count, and return what is to be written.

        Raises
        ------
        InvalidArgument
            If no device would accept the sums. Nothing is counted: else it would be sent for ever.
        Overloaded
            If too many keys wait to be acknowledged.
        """
        account = self._accounts.get(key)
        # Counts that ended elsewhere must not come back with the next addition.
        if account is None or (account.ends_s is not None and account.ends_s <= now_s):
            self._make_room()
            account = self._accounts[key] = self._new()
        sums = account.counts + Counter(counts)
        size_bytes = contribution_bytes(Contribution(account.contributor, account.began, sums))
        if size_bytes > self._limit_bytes or max(sums.values(), default=0) > LARGEST_COUNT:
            raise InvalidArgument(
                f"the counters of {key!r} would be larger than devices accept: {size_bytes} bytes of "
                f"{self._limit_bytes}, sums up to {LARGEST_COUNT}",
                advice="spread the names over several keys",
            )
        account.counts = sums
        account.renewed, account.ends_s = self._clock.next(), ends_s
        self._accounts.move_to_end(key)
        return _entry(key, account)

    def unacknowledged(self) -> tuple[str, ...]:
        """Keys whose last additions were not acknowledged."""
        return tuple(key for key, account in self._accounts.items() if account.counts != account.acknowledged)

    def current(self, key: str) -> Entry | None:
        """The entry to write for a key; None if nothing was added."""
        account = self._accounts.get(key)
        return _entry(key, account) if account is not None else None

    def acknowledged(self, key: str, written: Entry) -> None:
        """A state that `add` or `current` returned is on all replicas."""
        account = self._accounts.get(key)
        if account is None or not isinstance(written.value, Counters):
            return
        for each in written.value.contributions:
            if each.contributor == account.contributor:
                account.acknowledged |= Counter(each.counts)

    def cleared(self, key: str, stamp: Stamp) -> Entry | None:
        """The key was deleted up to a stamp: what is to be written now, None if nothing is left."""
        account = self._accounts.get(key)
        if account is None or account.began > stamp:
            return self.current(key)
        del self._accounts[key]
        left = account.counts - account.acknowledged
        if not left:
            return None
        self._clock.witness(stamp)
        anew = self._accounts[key] = self._new()
        anew.counts, anew.renewed, anew.ends_s = left, anew.began, account.ends_s
        return _entry(key, anew)

    def _new(self) -> _Account:
        return _Account(self._rng.getrandbits(64) or 1, self._clock.next())

    def _make_room(self) -> None:
        if len(self._accounts) < self._limit:
            return
        for key, account in self._accounts.items():
            if account.counts == account.acknowledged:
                del self._accounts[key]
                return
        raise Overloaded(
            f"{len(self._accounts)} keys have counts that no peer has acknowledged", advice="try again later"
        )


def _entry(key: str, account: _Account) -> Entry:
    contribution = Contribution(account.contributor, account.began, dict(account.counts))
    value = Counters((contribution,))
    return Entry(key, value=value, expires_s=account.ends_s, renewed=account.renewed)
