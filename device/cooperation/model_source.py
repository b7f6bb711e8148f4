"""Models from devices nearby first, then from a tier (Cachier dissertation, sections 5.1.1 and 5.4.4.1).

One search per object, in the background::

    listed? ──> holders? ──> ask a holder ──> digest correct? ──> done
      │            │  │            │ timeout             │ no: never ask that peer again
      │            │  └─ another device fetches it: wait ▼
      └────────────┴──────────> ask a tier <── no other holder

No peer is trusted: a model is accepted only if it has the digest that edge or cloud listed for the object. A
peer that does not answer costs at most `MODEL_TIMEOUT_S` once, and is not asked for a while. With the store's
claims, only one of several devices that need the same model at the same time fetches it from the tier. A node
that announces models which do not arrive is not waited for again until its back-off ends.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import cast

from nearsight.common.background.futures import outcome_of, pending, then, when_done
from nearsight.common.catalogue.model_fetcher import ModelSource
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import object_model_to_proto
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.context import CooperationContext, Steps
from nearsight.device.cooperation.protocol import holder_of, model_in, model_key
from nearsight.device.cooperation.trust import ModelDigest, PeerReputation, Verdict, stored_model, verify
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.protos import catalogue_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, GetObjectModelsResponse

GET_OBJECT_MODELS = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"].methods_by_name["GetObjectModels"]
MODEL_TIMEOUT_S = 2.0
"""Timeout of a request for a model to one peer [s]."""
HOLDERS_ASKED = 2
"""Maximum number of peers asked for one model before a tier is asked."""
READ_TIMEOUT_S = 1.0
"""Timeout of reading the holders of a model from the store [s]."""
LONGEST_WAIT_S = 3.0
"""Maximum wait for a model that another device fetches, according to the store [s]."""
POLL_S = 0.1
"""Interval of checks whether that device has the model [s]."""
_MOST_ITEMS = 64
"""Maximum number of list items that are processed, as any device can add items."""
_SHARE_OF_A_STEP = 0.25
"""Maximum share of the remaining time for one step."""


@dataclass(slots=True, eq=False)
class _Search:
    """State of the search for one object."""

    object_id: str
    deadline_s: float
    wait_until_s: float
    waits: bool = False
    """Whether it waits for the model because another device fetches it."""


class CooperativeModelSource:
    """A `ModelSource` that asks peers before tiers.

    Parameters
    ----------
    context : CooperationContext
        The store, the peers, and the listed digests.
    upstream : ModelSource
        Edge and cloud.
    """

    def __init__(self, context: CooperationContext, upstream: ModelSource) -> None:
        self._context = context
        self._upstream = upstream
        self._clock = context.clock
        self._background = context.background
        self._account = context.account
        self._reputation = PeerReputation()
        self._announcements = PeerReputation()
        self._open: dict[str, Future[Reply]] = {}
        self._from_tier: set[str] = set()
        self._log = get_logger("device.cooperation").bind(catalogue=context.catalogue)

    @property
    def distrusted(self) -> tuple[NodeId, ...]:
        """Peers that sent a wrong model."""
        return self._reputation.distrusted

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Object models. Peers are asked only for a single object of the own catalogue, else tiers alone."""
        if catalogue != self._context.catalogue or len(object_ids) != 1:
            return self._ask_tier(catalogue, object_ids, timeout_s)
        result: Future[Reply] = pending()
        now_s, longest_wait_s = self._clock.monotonic(), min(LONGEST_WAIT_S, timeout_s / 2)
        search = _Search(object_ids[0], now_s + timeout_s, now_s + longest_wait_s)
        self._background.submit(lambda: self._begin_or_join(search, result))
        return result

    def came_from_tier(self, object_id: str) -> bool:
        """Whether the last model received for this object came from edge or cloud."""
        return object_id in self._from_tier

    def listed(self) -> None:
        """After a new listing: trust peers again whose models were wrong only by the old digests."""
        self._background.submit(lambda: self._reputation.restore(self._context.digests))

    # In the background thread

    def _begin_or_join(self, search: _Search, result: Future[Reply]) -> None:
        """Start a search, or wait for the open one of the same object: claims exclude only other devices."""
        open_already = self._open.get(search.object_id)
        if open_already is not None:
            open_already.add_done_callback(lambda done: _pass_on(done, result))
            return
        self._open[search.object_id] = result
        when_done(result, self._background, lambda _: self._open.__delitem__(search.object_id))
        self._context.run(self._find(search, result))

    def _find(self, search: _Search, result: Future[Reply]) -> Steps[None]:
        """Take the model of a peer, or ask a tier if no peer has it."""
        reply = yield from self._from_peers(search)
        if reply is not None:
            # Only the model is returned, without other fields of the peer's answer.
            response: GetObjectModelsResponse = reply.message
            del response.missing[:], response.left_out[:]
            self._account.add(peer_models=1, peer_bytes=reply.received_bytes)
            self._from_tier.discard(search.object_id)
            result.set_result(reply)
            return
        left_s = search.deadline_s - self._clock.monotonic()
        if left_s <= 0:
            result.set_exception(DeadlineExceeded("the search for a model at peers took the whole timeout"))
            return
        answer = self._ask_tier(self._context.catalogue, (search.object_id,), left_s)
        answer.add_done_callback(lambda done: _pass_on(done, result))

    def _from_peers(self, search: _Search) -> Steps[Reply | None]:
        """The listed model in the store or of a holder; None if there is none."""
        neighbours, digests = self._context.neighbours, self._context.digests
        while neighbours() and not digests.listed and self._has_time_to_wait(search):
            yield None, POLL_S
        listed = digests.of(search.object_id) if neighbours() else None
        if listed is None:
            return None
        key = model_key(self._context.catalogue, search.object_id, listed.version)
        items = yield from self._items(search, key)
        stored = (self._stored(data, listed) for item in items if (data := model_in(item)) is not None)
        reply = next((model for model in stored if model is not None), None)
        if reply is None:
            holders = {node for item in items if (node := holder_of(item)) is not None}
            reply = yield from self._from_holders(search, listed, holders)
        self._end_waiting(search, key, in_vain=reply is None)
        if reply is not None:
            # Read first: a listing that arrives after the comparison has another revision.
            reply.message.revision = digests.revision
        return reply if digests.of(search.object_id) == listed else None  # else it was replaced meanwhile

    def _items(self, search: _Search, key: str) -> Steps[Sequence[bytes]]:
        """Read the holders of the model from the store, or the model itself; none if a tier must be asked.

        While another device fetches the model, this one waits.
        """
        claims = True
        while True:
            limit_s = self._limit_s(search, READ_TIMEOUT_S)
            read = yield self._context.store.items(key, claim=claims), limit_s
            if isinstance(read, NearsightError):
                self._log.debug("the holders of a model cannot be read", reason=str(read))
                return ()
            if read.items or not claims or read.wait_ms == 0:
                return tuple(read.items[-_MOST_ITEMS:])
            if self._has_time_to_wait(search) and self._may_wait(search, key):
                if not search.waits:
                    self._account.add(waited=1)
                search.waits = True
                yield None, min(read.wait_ms / 1e3, POLL_S)
            else:
                self._end_waiting(search, key, in_vain=True)
                # The node that sent this may hide the holders. Without a claim another node is asked as well.
                claims = False

    def _may_wait(self, search: _Search, key: str) -> bool:
        """Whether to wait: the responsible node has not announced models in vain recently."""
        now_s = self._clock.monotonic()
        nodes = self._context.calls.nodes_for(key, 1)
        return search.waits or all(self._announcements.may_be_asked(node, now_s) for node in nodes)

    def _end_waiting(self, search: _Search, key: str, *, in_vain: bool) -> None:
        """Record whether the model arrived for which this device waited, if it did."""
        if not search.waits:
            return
        search.waits = False
        self._account.add(waited_in_vain=in_vain)
        for node in self._context.calls.nodes_for(key, 1):
            if in_vain:
                self._announcements.failed(node, self._clock.monotonic())
            else:
                self._announcements.answered(node)

    def _from_holders(
        self, search: _Search, listed: ModelDigest, holders: Set[NodeId]
    ) -> Steps[Reply | None]:
        """Ask a few of the holders, one after another; None if none of them has the model."""
        request, left = GetObjectModelsRequest(object_ids=[search.object_id]), set(holders)
        for _ in range(HOLDERS_ASKED):
            here, now_s = frozenset(self._context.neighbours()), self._clock.monotonic()
            usable = sorted(node for node in left & here if self._reputation.may_be_asked(node, now_s))
            if not usable:
                return None
            node = self._context.rng.choice(usable)
            left.remove(node)
            limit_s = self._limit_s(search, MODEL_TIMEOUT_S)
            call = self._context.calls.call(
                node, GET_OBJECT_MODELS, request, timeout_s=limit_s, catalogue=self._context.catalogue
            )
            answer = yield call, limit_s
            if isinstance(answer, NearsightError):
                self._account.add(silent_peers=1)
                self._reputation.failed(node, self._clock.monotonic())
                self._log.debug("no model from a peer", peer=shown(node), reason=str(answer))
                continue
            verdict = verify(answer, search.object_id, listed)
            if verdict is Verdict.RIGHT:
                self._reputation.answered(node)
                return cast(Reply, answer)
            if verdict is not Verdict.MISSING:
                self._account.add(rejected_models=1, rejected_bytes=answer.received_bytes)
                self._blame(node, search.object_id, listed, verdict)
        return None

    def _blame(self, node: NodeId, object_id: str, listed: ModelDigest, verdict: Verdict) -> None:
        if verdict is Verdict.OUTDATED:  # may happen to an honest peer
            self._reputation.failed(node, self._clock.monotonic())
            return
        self._reputation.distrust(node, object_id, listed.digest)
        self._log.warning(
            "a peer sent a wrong model and is not asked again", peer=shown(node), object=object_id
        )

    def _stored(self, data: bytes, listed: ModelDigest) -> Reply | None:
        """A model that is itself in the store, if it has the listed digest."""
        model = stored_model(data, listed)
        if model is None:
            self._account.add(rejected_models=1, rejected_bytes=len(data))
            return None
        message, blobs = object_model_to_proto(model, 0)
        answer = GetObjectModelsResponse(models=[message])
        return Reply(answer, tuple(map(memoryview, blobs)), (), 0, len(data))

    def _limit_s(self, search: _Search, longest_s: float) -> float:
        """Timeout of one step that leaves enough time for asking a tier at the end."""
        left_s = search.deadline_s - self._clock.monotonic()
        return max(0.0, min(longest_s, left_s * _SHARE_OF_A_STEP))

    def _has_time_to_wait(self, search: _Search) -> bool:
        return self._clock.monotonic() < search.wait_until_s

    def _ask_tier(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        return then(self._upstream.get_models(catalogue, object_ids, timeout_s), self._counted)

    def _counted(self, reply: Reply) -> Reply:
        """Count an answer of a tier."""
        message = reply.message
        came = message.models if isinstance(message, GetObjectModelsResponse) else ()
        self._from_tier.update(model.object_id for model in came)
        tier = "cloud" if reply.hops and reply.hops[-1].tier == "cloud" else "edge"
        self._account.add(**{f"{tier}_models": len(came), f"{tier}_bytes": reply.received_bytes})
        return reply


def _pass_on(done: Future[Reply], result: Future[Reply]) -> None:
    outcome = outcome_of(done)
    if isinstance(outcome, NearsightError):
        result.set_exception(outcome)
    else:
        result.set_result(outcome)
