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

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from nearsight.common.background.futures import outcome_of, pending, then, when_done
from nearsight.common.catalogue.model_fetcher import ModelSource
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import object_model_to_proto
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.protocol import holder_of, model_in, model_key
from nearsight.device.cooperation.trust import ModelDigest, PeerReputation, Verdict, stored_model, verify
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.store.kvstore import ItemsRead
from nearsight.protos import catalogue_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, GetObjectModelsResponse

A = TypeVar("A")

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
    result: Future[Reply]
    deadline_s: float
    wait_until_s: float
    listed: ModelDigest = field(init=False)
    """Listed version and digest, and key of the holders. Both are known before a peer is asked."""
    key: str = field(init=False)
    holders: set[NodeId] = field(default_factory=set)
    asked: set[NodeId] = field(default_factory=set)
    waited: bool = False
    claims: bool = True


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
        search = _Search(object_ids[0], result, now_s + timeout_s, now_s + longest_wait_s)
        self._background.submit(lambda: self._begin_or_join(search))
        return result

    def came_from_tier(self, object_id: str) -> bool:
        """Whether the last model received for this object came from edge or cloud."""
        return object_id in self._from_tier

    def listed(self) -> None:
        """After a new listing: trust peers again whose models were wrong only by the old digests."""
        self._background.submit(lambda: self._reputation.restore(self._context.digests))

    # In the background thread

    def _begin_or_join(self, search: _Search) -> None:
        """Start a search, or wait for the open one of the same object: claims exclude only other devices."""
        open_already = self._open.get(search.object_id)
        if open_already is not None:
            open_already.add_done_callback(lambda done: _pass_on(done, search.result))
            return
        self._open[search.object_id] = search.result
        when_done(search.result, self._background, lambda _: self._open.__delitem__(search.object_id))
        self._begin(search)

    def _begin(self, search: _Search) -> None:
        digests = self._context.digests
        if not self._context.neighbours():
            self._fall_back(search)
        elif not digests.listed and self._has_time_to_wait(search):
            self._background.submit(lambda: self._begin(search), after_s=POLL_S)
        elif (listed := digests.of(search.object_id)) is None:
            self._fall_back(search)
        else:
            search.listed = listed
            search.key = model_key(self._context.catalogue, search.object_id, listed.version)
            self._look_up(search)

    def _look_up(self, search: _Search) -> None:
        """Read the holders of the model from the store."""
        read = self._context.store.items(search.key, claim=search.claims)
        limit_s = self._limit_s(search, READ_TIMEOUT_S)
        self._await(read, limit_s, lambda outcome: self._looked_up(search, outcome))

    def _looked_up(self, search: _Search, outcome: ItemsRead | NearsightError) -> None:
        if isinstance(outcome, NearsightError):
            self._log.debug("the holders of a model cannot be read", reason=str(outcome))
            self._fall_back(search)
        elif outcome.items:
            self._found(search, outcome.items[-_MOST_ITEMS:])
        elif search.claims and outcome.wait_ms > 0:
            self._wait_for_other(search, outcome.wait_ms)
        else:
            self._fall_back(search)

    def _wait_for_other(self, search: _Search, wait_ms: int) -> None:
        """Handle the store's message that another device fetches the model."""
        if self._has_time_to_wait(search) and self._may_wait(search):
            if not search.waited:
                search.waited = True
                self._account.add(waited=1)
            wait_s = min(wait_ms / 1e3, POLL_S)
            self._background.submit(lambda: self._look_up(search), after_s=wait_s)
            return
        self._end_waiting(search)
        # The node that sent this may hide the holders. Without a claim another node is asked as well.
        search.claims = False
        self._look_up(search)

    def _may_wait(self, search: _Search) -> bool:
        """Whether to wait: the responsible node has not announced models in vain recently."""
        if search.waited:
            return True
        now_s = self._clock.monotonic()
        return all(self._announcements.may_be_asked(node, now_s) for node in self._responsible(search))

    def _end_waiting(self, search: _Search, *, in_vain: bool = True) -> None:
        """Record whether the model arrived for which this device waited, if it did."""
        if not search.waited:
            return
        search.waited = False
        self._account.add(waited_in_vain=in_vain)
        for node in self._responsible(search):
            if in_vain:
                self._announcements.failed(node, self._clock.monotonic())
            else:
                self._announcements.answered(node)

    def _responsible(self, search: _Search) -> tuple[NodeId, ...]:
        return self._context.calls.nodes_for(search.key, 1)

    def _found(self, search: _Search, items: Sequence[bytes]) -> None:
        """Use a model that is itself in the store, or ask a holder."""
        for item in items:
            data = model_in(item)
            if data is not None and self._take_stored(search, data):
                return
        search.holders = {node for item in items if (node := holder_of(item)) is not None}
        self._ask_holder(search)

    def _ask_holder(self, search: _Search) -> None:
        """Ask one of the remaining holders; a tier if there is none."""
        here, now_s = frozenset(self._context.neighbours()), self._clock.monotonic()
        named = search.holders & here - search.asked
        holders = sorted(node for node in named if self._reputation.may_be_asked(node, now_s))
        if not holders or len(search.asked) >= HOLDERS_ASKED:
            self._fall_back(search)
            return
        node = self._context.rng.choice(holders)
        search.asked.add(node)
        request = GetObjectModelsRequest(object_ids=[search.object_id])
        limit_s = self._limit_s(search, MODEL_TIMEOUT_S)
        call = self._context.calls.call(
            node, GET_OBJECT_MODELS, request, timeout_s=limit_s, catalogue=self._context.catalogue
        )
        self._await(call, limit_s, lambda outcome: self._peer_answered(search, node, outcome))

    def _peer_answered(self, search: _Search, node: NodeId, outcome: Reply | NearsightError) -> None:
        if isinstance(outcome, NearsightError):
            self._account.add(silent_peers=1)
            self._reputation.failed(node, self._clock.monotonic())
            self._log.debug("no model from a peer", peer=shown(node), reason=str(outcome))
        else:
            verdict = verify(outcome, search.object_id, search.listed)
            if verdict is Verdict.RIGHT:
                self._reputation.answered(node)
                self._take(search, outcome)
                return
            if verdict is not Verdict.MISSING:
                self._reject(search, node, outcome, verdict)
        self._ask_holder(search)

    def _reject(self, search: _Search, node: NodeId, reply: Reply, verdict: Verdict) -> None:
        self._account.add(rejected_models=1, rejected_bytes=reply.received_bytes)
        if verdict is Verdict.OUTDATED:  # may happen to an honest peer
            self._reputation.failed(node, self._clock.monotonic())
            return
        self._reputation.distrust(node, search.object_id, search.listed.digest)
        self._log.warning(
            "a peer sent a wrong model and is not asked again",
            peer=shown(node),
            object=search.object_id,
        )

    def _take(self, search: _Search, reply: Reply) -> None:
        """End the search. Only the model is returned, without other fields of the peer's answer."""
        self._end_waiting(search, in_vain=False)
        if isinstance(reply.message, GetObjectModelsResponse):
            reply.message.revision = self._context.digests.revision
            del reply.message.missing[:], reply.message.left_out[:]
        self._account.add(peer_models=1, peer_bytes=reply.received_bytes)
        self._from_tier.discard(search.object_id)
        search.result.set_result(reply)

    def _take_stored(self, search: _Search, data: bytes) -> bool:
        """Use a model that is itself in the store, if it has the listed digest."""
        model = stored_model(data, search.listed)
        if model is None:
            self._account.add(rejected_models=1, rejected_bytes=len(data))
            return False
        message, blobs = object_model_to_proto(model, 0)
        answer = GetObjectModelsResponse(models=[message])
        self._take(search, Reply(answer, tuple(map(memoryview, blobs)), (), 0, len(data)))
        return True

    def _limit_s(self, search: _Search, longest_s: float) -> float:
        """Timeout of one step that leaves enough time for asking a tier at the end."""
        left_s = search.deadline_s - self._clock.monotonic()
        return max(0.0, min(longest_s, left_s * _SHARE_OF_A_STEP))

    def _has_time_to_wait(self, search: _Search) -> bool:
        return self._clock.monotonic() < search.wait_until_s

    # Requests to tiers

    def _fall_back(self, search: _Search) -> None:
        """Ask a tier, as no peer has the model."""
        self._end_waiting(search)
        left_s = search.deadline_s - self._clock.monotonic()
        if left_s <= 0:
            search.result.set_exception(
                DeadlineExceeded("the search for a model at peers took the whole timeout")
            )
            return
        answer = self._ask_tier(self._context.catalogue, (search.object_id,), left_s)
        answer.add_done_callback(lambda done: _pass_on(done, search.result))

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

    def _await(self, future: Future[A], limit_s: float, do: Callable[[A | NearsightError], None]) -> None:
        """Call ``do`` once in the background thread, with the outcome or with an error after ``limit_s``."""
        waiting = [do]

        def go_on(outcome: A | NearsightError) -> None:
            if waiting:
                waiting.pop()(outcome)

        when_done(future, self._background, go_on)
        late = DeadlineExceeded(f"no answer within {limit_s} s")
        self._background.submit(lambda: go_on(late), after_s=limit_s)


def _pass_on(done: Future[Reply], result: Future[Reply]) -> None:
    outcome = outcome_of(done)
    if isinstance(outcome, NearsightError):
        result.set_exception(outcome)
    else:
        result.set_result(outcome)
