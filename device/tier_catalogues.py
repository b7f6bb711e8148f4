"""The catalogue of several tiers as one: the first that answers, the nearest first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from nearsight.common.background.futures import outcome_of, pending
from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError, PeerError
from nearsight.common.rpc.client import Reply
from nearsight.device.edge_client import CatalogueClient

A = TypeVar("A")

_REST_S = 5.0
"""A tier that did not answer is asked last for so long."""


class TierCatalogues:
    """Asks the tiers in turn. Thread-safe.

    Parameters
    ----------
    tiers : sequence of CatalogueClient
        The nearest first; at least one.
    clock : Clock
        For the rest of tiers that do not answer.
    """

    def __init__(self, tiers: Sequence[CatalogueClient], clock: Clock) -> None:
        self._tiers = tuple(tiers)
        self._clock = clock
        self._lock = threading.Lock()
        self._rests_until_s: dict[CatalogueClient, float] = {}

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Object models, of the first tier that answers."""
        return self._ask(lambda tier, limit_s: tier.get_models(catalogue, object_ids, limit_s), timeout_s)

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Which objects there are."""
        return self._ask(lambda tier, limit_s: tier.list_objects(limit_s), timeout_s)

    def get_revision(self, timeout_s: float) -> Future[int]:
        """At which revision the catalogue is."""
        return self._ask(lambda tier, limit_s: tier.get_revision(limit_s), timeout_s)

    def _ask(self, call: Callable[[CatalogueClient, float], Future[A]], timeout_s: float) -> Future[A]:
        result: Future[A] = pending()
        order = self._order()
        limit_s = timeout_s / len(order)

        def ask(position: int) -> None:
            call(order[position], limit_s).add_done_callback(lambda done: answered(position, done))

        def answered(position: int, done: Future[A]) -> None:
            outcome = outcome_of(done)
            tier = order[position]
            if not isinstance(outcome, NearsightError):
                result.set_result(outcome)
            elif isinstance(outcome, PeerError) and position + 1 < len(order):
                self._rest(tier)
                ask(position + 1)
            else:
                result.set_exception(outcome)

        ask(0)
        return result

    def _order(self) -> list[CatalogueClient]:
        now_s = self._clock.monotonic()
        with self._lock:
            return sorted(self._tiers, key=lambda tier: self._rests_until_s.get(tier, now_s) > now_s)

    def _rest(self, tier: CatalogueClient) -> None:
        with self._lock:
            self._rests_until_s[tier] = self._clock.monotonic() + _REST_S
