"""Additions of this device to counters, kept so that none is lost and none counts twice.

A contribution holds the total since its start. Therefore sending it again changes nothing, and the next
message also carries the additions that an earlier message failed to deliver. If another device deleted the
key meanwhile, the additions that it had received are deleted with it; a new contribution starts with the
rest.
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
    MAX_PARTS_BYTES,
    Contribution,
    Counters,
    Entry,
    part_bytes,
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
    """The contributions of one process of one device. Not thread-safe.

    Parameters
    ----------
    clock : LamportClock
        Stamps the starts of contributions.
    rng : random.Random
        Draws the ids of contributors. Each contribution has its own id, so that it is not taken for the
        continuation of another one that is no longer stored here.
    limit : int
        Maximum number of keys that are kept. Beyond it the oldest acknowledged key is dropped, but never one
        that is not acknowledged.
    """

    def __init__(self, clock: LamportClock, rng: random.Random, limit: int) -> None:
        self._clock = clock
        self._rng = rng
        self._limit = limit
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def add(self, key: str, counts: Mapping[str, int], ends_s: float | None, now_s: float) -> Entry:
        """Add to the counters, and return the entry to write.

        Raises
        ------
        InvalidArgument
            If no device would accept the sums. Then nothing is added; otherwise the entry would be sent
            forever.
        Overloaded
            If too many keys wait for acknowledgement.
        """
        account = self._accounts.get(key)
        # Counts that expired on other devices must not return with the next addition.
        if account is None or (account.ends_s is not None and account.ends_s <= now_s):
            self._make_room()
            account = self._accounts[key] = self._new()
        sums = account.counts + Counter(counts)
        size_bytes = part_bytes(Contribution(account.contributor, account.began, sums))
        if size_bytes > MAX_PARTS_BYTES or max(sums.values(), default=0) > LARGEST_COUNT:
            raise InvalidArgument(
                f"the counters of {key!r} would exceed the limits of the devices: {size_bytes} bytes of "
                f"{MAX_PARTS_BYTES}, sums up to {LARGEST_COUNT}",
                advice="distribute the counters over several keys",
            )
        account.counts = sums
        account.renewed, account.ends_s = self._clock.next(), ends_s
        self._accounts.move_to_end(key)
        return _entry(key, account)

    def forget(self, key: str) -> None:
        """Forget the additions to a key that this device deletes or sets to another kind of value.

        Later additions are a new contribution.
        """
        self._accounts.pop(key, None)

    def unacknowledged(self) -> list[Entry]:
        """The entries to write again, as their last additions were not acknowledged."""
        return [_entry(key, one) for key, one in self._accounts.items() if one.counts != one.acknowledged]

    def current(self, key: str) -> Entry | None:
        """The entry to write for a key; None if nothing was added."""
        account = self._accounts.get(key)
        return _entry(key, account) if account is not None else None

    def acknowledged(self, key: str, written: Entry) -> None:
        """Record that a state returned by `add` or `current` is on all replicas."""
        account = self._accounts.get(key)
        if account is None or not isinstance(written.value, Counters):
            return
        for each in written.value.parts:
            if each.contributor == account.contributor:
                account.acknowledged |= Counter(each.counts)

    def cleared(self, key: str, stamp: Stamp) -> Entry | None:
        """Handle the deletion of a key up to a stamp: the entry to write now, None if nothing is left."""
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
