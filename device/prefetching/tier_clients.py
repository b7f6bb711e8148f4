"""Clients for the other services of tiers: object models, listings of objects, predictions.

They use connections of their own, so that the transfer of a model never delays an answer to a request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from nearsight.common.background.futures import outcome_of, pending, then
from nearsight.common.catalogue.answers import Listing, listing_of
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError, PeerError
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import next_objects_from_proto
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, EdgeTimes, Prediction
from nearsight.protos import catalogue_pb2, prediction_pb2
from nearsight.protos.catalogue_pb2 import (
    GetObjectModelsRequest,
    ListCataloguesRequest,
    ListCataloguesResponse,
    ListObjectsRequest,
)
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest, GetNextObjectsResponse

_log = get_logger("device.edge")

A = TypeVar("A")

_LONGEST_ANSWER_MS = 60_000.0
"""Longest time of a photo at an edge that is accepted as plausible [ms]."""
_BACK_OFF_S = 5.0
"""Time for which a tier that did not answer is asked only after the others [s]."""


class ObjectLister(Protocol):
    """A tier, or several in turn, that lists the catalogue."""

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Request the list of objects."""

    def get_revision(self, timeout_s: float) -> Future[int]:
        """Request the revision of the catalogue."""


class CatalogueClient:
    """Client of a tier's Catalogue service. No call blocks; the futures fail with a NearsightError.

    Parameters
    ----------
    channel : Channel
        The connection; closed with the client. Its client id is the device's.
    catalogue : str
        The catalogue for listings and predictions.
    """

    def __init__(self, channel: Channel, catalogue: str) -> None:
        self._channel = channel
        self._catalogue = catalogue
        self._models = Stub(channel, catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"])

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Request object models."""
        request = GetObjectModelsRequest(object_ids=object_ids)
        return self._models.get_object_models.future(request, timeout_s=timeout_s, catalogue=catalogue)

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """Request the list of objects with their versions."""
        answer = self._models.list_objects.future(
            ListObjectsRequest(), timeout_s=timeout_s, catalogue=self._catalogue
        )
        return then(answer, listing_of)

    def get_revision(self, timeout_s: float) -> Future[int]:
        """Request the revision of the catalogue; 0 if the tier has no catalogue of this name."""
        answer = self._models.list_catalogues.future(ListCataloguesRequest(), timeout_s=timeout_s)
        return then(answer, self._revision_in)

    def _revision_in(self, reply: Reply) -> int:
        response: ListCataloguesResponse = reply.message
        return next((one.revision for one in response.catalogues if one.name == self._catalogue), 0)

    def close(self) -> None:
        """Close the connection; open calls fail."""
        self._channel.close()


class EdgeClient(CatalogueClient):
    """Client of an edge, which also predicts."""

    def __init__(self, channel: Channel, catalogue: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(channel, catalogue)
        self._clock = clock
        self._warned = False
        self._prediction = Stub(channel, prediction_pb2.DESCRIPTOR.services_by_name["Prediction"])

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Prediction]:
        """Report the object that the device recognised, and request a prediction."""
        request = GetNextObjectsRequest(current_object_id=current)
        sent_s = self._clock.monotonic()
        answer = self._prediction.get_next_objects.future(
            request, timeout_s=timeout_s, catalogue=self._catalogue
        )
        return then(answer, lambda reply: self._predicted_by(reply, (self._clock.monotonic() - sent_s) * 1e3))

    def _predicted_by(self, reply: Reply, round_trip_ms: float) -> Prediction:
        response: GetNextObjectsResponse = reply.message
        following = next_objects_from_proto(response.next_objects, MOST_NEXT_OBJECTS)
        now = self._now_at(reply, response.answer_ms, round_trip_ms)
        return Prediction(following, response.next_objects.revision, now)

    def _now_at(self, reply: Reply, answer_ms: float, round_trip_ms: float) -> EdgeTimes | None:
        """The latency of a photo now; None if the edge states none, or one that is impossible."""
        if answer_ms == 0 or not reply.hops:
            return None
        own = reply.hops[-1]
        transfer_ms = round_trip_ms - own.queue_ms - own.compute_ms - own.next_tier_ms
        if 0 < answer_ms <= _LONGEST_ANSWER_MS and 0 <= transfer_ms < math.inf:
            return EdgeTimes(answer_ms, transfer_ms)
        log = _log.debug if self._warned else _log.warning  # once, not with every hit
        log(
            "the times that the edge reports are invalid and ignored",
            answer_ms=answer_ms,
            transfer_ms=transfer_ms,
        )
        self._warned = True
        return None


class TierCatalogues:
    """Asks several tiers in turn. Thread-safe.

    Parameters
    ----------
    tiers : sequence of CatalogueClient
        The nearest first; at least one.
    clock : Clock
        For the back-off of tiers that do not answer.
    """

    def __init__(self, tiers: Sequence[CatalogueClient], clock: Clock) -> None:
        self._tiers = tuple(tiers)
        self._clock = clock
        self._back_off_until_s: dict[CatalogueClient, float] = {}

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Object models from the first tier that answers."""
        return self._ask(lambda tier, limit_s: tier.get_models(catalogue, object_ids, limit_s), timeout_s)

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        """The list of objects from the first tier that answers."""
        return self._ask(lambda tier, limit_s: tier.list_objects(limit_s), timeout_s)

    def get_revision(self, timeout_s: float) -> Future[int]:
        """The revision of the catalogue from the first tier that answers."""
        return self._ask(lambda tier, limit_s: tier.get_revision(limit_s), timeout_s)

    def _ask(self, call: Callable[[CatalogueClient, float], Future[A]], timeout_s: float) -> Future[A]:
        result: Future[A] = pending()
        now_s = self._clock.monotonic()
        order = sorted(self._tiers, key=lambda tier: self._back_off_until_s.get(tier, now_s) > now_s)

        def ask(position: int) -> None:
            asked = call(order[position], timeout_s / len(order))
            asked.add_done_callback(lambda done: answered(position, done))

        def answered(position: int, done: Future[A]) -> None:
            outcome = outcome_of(done)
            if not isinstance(outcome, NearsightError):
                result.set_result(outcome)
            elif isinstance(outcome, PeerError) and position + 1 < len(order):
                self._back_off_until_s[order[position]] = self._clock.monotonic() + _BACK_OFF_S
                ask(position + 1)
            else:
                result.set_exception(outcome)

        ask(0)
        return result
