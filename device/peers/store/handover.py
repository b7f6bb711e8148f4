"""Moves entries to their replicas after the membership changed, and synchronises the replicas.

One background thread does this. It sends digests of the entries that other nodes should hold, then the
entries that they request, then a completion message (see `View`). Failed steps are retried until they succeed
or the receiver leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import xxhash

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.call import Reply, message_of
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.routing.cluster_view import View
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.handover_plan import MOST_BEFORE, HandoverPlan, Placement
from nearsight.device.peers.store.replica_calls import SLOWEST_BYTES_PER_S
from nearsight.device.peers.store.service import OFFER, WRITE
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.values import Entry, size_bytes
from nearsight.protos.peers_pb2 import DigestMessage, OfferRequest, OfferResponse, WriteRequest, WriteResponse

SETTLE_AFTER_S = 0.05
"""Delay before the first change is processed, as further changes often follow."""
PAUSE_PER_NODE_S = 0.1
"""Maximum delay before changes are processed, by number of nodes. Every change causes messages between all
nodes; many nodes that join at once on one wireless channel would saturate it."""
CALM_AFTER_S = 2.0
"""Time without changes after which the delay is reset to its initial value."""
MISPLACED_AFTER_S = 0.005
"""An entry from a node with another view may be missing on the replicas that readers ask, so it is handed
over quickly."""
RETRY_AFTER_S = 1.0
QUERY_AFTER_S = 2.0
"""Timeout after which a node that did not report completion is queried again."""
MAX_QUERIES = 3
SWEEP_EVERY_S = 30.0
SWEEP_TURNS = 4
"""Number of sweeps in which all keys are compared with the other replicas: a quarter at a time."""
OFFERED_AT_ONCE = 512
SENT_AT_ONCE = 256
SENT_BYTES_AT_ONCE = 256 * 1024


@dataclass(slots=True)
class HandoverCounts:
    """Counters of hand-overs."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    dropped: int = 0


class HandoverWorker:
    """Hands over entries, in one background thread.

    Parameters
    ----------
    shared : SharedStore
        The entries of this node.
    route : KRoute
        The nodes, and connections to them.
    settings : PeerSettings
        Replicas and timeouts.
    clock : Clock
        The time.
    """

    def __init__(self, shared: SharedStore, route: KRoute, settings: PeerSettings, clock: Clock) -> None:
        self._own = route.own
        self._shared = shared
        self._cluster = route.cluster
        self._links = route.connections
        self._settings = settings
        self._clock = clock
        self._log = get_logger("peers.handover")
        self._worker = BackgroundWorker(clock, "peers-handover")
        self._lock = threading.Lock()
        self._misplaced: set[str] = set()
        self._placements_since: list[Placement] = [self._placement(route.cluster.view.nodes)]
        self._offer_all = False
        self._notify_all = False
        self._requesters: set[NodeId] = set()
        self._pause_s = SETTLE_AFTER_S
        self._changed_s = float("-inf")
        self._requested_s: dict[NodeId, float] = {}
        # Used only by the worker's thread.
        self._last_placements: tuple[Placement, ...] = ()
        self._turn = 0
        self._failures = 0
        self._queries: dict[NodeId, int] = {}
        self.counts = HandoverCounts()

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()
        self._worker.submit(self._sweep, name="sweep", after_s=SWEEP_EVERY_S)

    def stop(self) -> None:
        """Stop the thread after its current job."""
        self._worker.stop(self._settings.read_timeout_s)

    def changed(self, before: View, after: View) -> None:
        """Schedule the hand-over after a change of the view. Call it in the order of the changes."""
        stayed = {n for n in before.nodes & after.nodes if before.incarnations[n] == after.incarnations[n]}
        now_s = self._clock.monotonic()
        with self._lock:
            # A restarted node holds nothing, as if it had left and joined.
            self._placements_since += [self._placement(frozenset(stayed)), self._placement(after.nodes)]
            self._notify_all = True
            self._failures = 0
            if now_s - self._changed_s > CALM_AFTER_S:
                self._pause_s = SETTLE_AFTER_S
            self._changed_s = now_s
            pause_s = self._pause_s
        self._schedule(pause_s)
        self._worker.submit(self._query_missing, name="query", after_s=QUERY_AFTER_S)

    def misplaced(self, key: str) -> None:
        """Schedule the hand-over of an entry that is misplaced, or came from a node with another view."""
        with self._lock:
            self._misplaced.add(key)
        self._schedule(MISPLACED_AFTER_S)

    def offers_requested(self, node: NodeId) -> None:
        """Schedule offers to a node that requested all of them again."""
        now_s = self._clock.monotonic()
        with self._lock:
            nodes = self._cluster.view.nodes
            recently = now_s - self._requested_s.get(node, float("-inf")) < RETRY_AFTER_S
            if node not in nodes or recently:
                return
            self._requested_s[node] = now_s
            self._placements_since += [self._placement(nodes - {node}), self._placement(nodes)]
            self._requesters.add(node)
        self._schedule()

    def resynchronise(self) -> None:
        """Offer everything to all nodes and request their offers, after a suspension or change of address."""
        with self._lock:
            self._offer_all = True
        self._schedule()
        self._worker.submit(self._query_missing, name="query")

    def leave(self, timeout_s: float) -> None:
        """Hand over each entry to its replicas without this node; blocks for ``timeout_s`` at most."""
        done = threading.Event()
        self._worker.submit(lambda: self._hand_over_all(done))
        done.wait(timeout_s)

    def _schedule(self, after_s: float = SETTLE_AFTER_S) -> None:
        self._worker.submit(self._run, name="handover", after_s=after_s)

    def _placement(self, nodes: frozenset[NodeId]) -> Placement:
        return Placement(nodes, self._settings.replicas)

    def _run(self) -> None:
        """Offer the entries that changes of the view, misplaced entries and requests of nodes require."""
        with self._lock:
            view = self._cluster.view
            placements, self._placements_since = self._placements_since, []
            misplaced, self._misplaced = self._misplaced, set()
            offer_all, self._offer_all = self._offer_all, False
            notify_all, self._notify_all = self._notify_all or offer_all, False
            requesters, self._requesters = self._requesters, set()
            if notify_all:
                longest_s = max(SETTLE_AFTER_S, PAUSE_PER_NODE_S * len(view.nodes))
                self._pause_s = min(2 * self._pause_s, longest_s)
        notified = (view.nodes if notify_all else view.nodes & requesters) - {self._own}
        after = self._placement(view.nodes)
        # Without repetitions, as each failed attempt adds one; a plan needs no more than its limit.
        distinct = tuple(dict.fromkeys((*self._last_placements, *placements)))[: MOST_BEFORE + 1]
        before = () if offer_all else distinct
        replan = offer_all or bool(placements)
        plan = HandoverPlan(self._own, self._shared.keys() if replan else (), before if replan else (), after)
        for key in misplaced:
            plan.add(key)
        failed = self._carry_out(plan, view, notified)
        if not failed and self._cluster.view.digest == view.digest:
            self._failures = 0
            if replan:
                self._last_placements = (after,)
        else:
            with self._lock:
                self._misplaced.update(key for key in misplaced if key in self._shared.entries)
                if replan:
                    self._placements_since = [after, *self._placements_since]
                    self._offer_all = self._offer_all or offer_all
                # Nodes that received completion need no second message; after another change all nodes
                # receive one.
                self._requesters |= failed & notified
            self._last_placements = before
            self._schedule(min(SWEEP_EVERY_S, RETRY_AFTER_S * 2**self._failures))
            self._failures = min(self._failures + 1, 5)

    def _sweep(self) -> None:
        """Compare part of the entries with the other replicas; drop those that only others should hold."""
        self._worker.submit(self._sweep, name="sweep", after_s=SWEEP_EVERY_S)
        view, turn, held = self._cluster.view, self._turn, self._shared.keys()
        keys = [key for key in held if (xxhash.xxh3_64_intdigest(key.encode()) - turn) % SWEEP_TURNS == 0]
        plan = HandoverPlan(self._own, keys, (), self._placement(view.nodes))
        self._turn += 1
        digests = self._shared.digests(keys)
        self._carry_out(plan, view, frozenset(), displace=False)
        if self._cluster.view is view:
            self.counts.dropped += self._shared.drop({key: digests[key] for key in plan.droppable()})

    def _query_missing(self) -> None:
        """Query nodes that did not report completion; stop waiting after `MAX_QUERIES` attempts."""
        with self._lock:
            calm_s = self._clock.monotonic() - self._changed_s
        if calm_s < QUERY_AFTER_S:  # they have not had enough time to report completion
            self._worker.submit(self._query_missing, name="query", after_s=QUERY_AFTER_S - calm_s)
            return
        view = self._cluster.view
        missing = self._cluster.missing()
        self._queries = {node: self._queries.get(node, 0) + 1 for node in missing}
        for node in missing:
            if self._queries[node] > MAX_QUERIES:
                # It answers only pings, or its view differs permanently: do not wait for it any longer.
                self._cluster.complete(node, view.digest)
            else:
                self._offer(node, (), view, ask=True)
        if missing:
            self._worker.submit(self._query_missing, name="query", after_s=QUERY_AFTER_S)

    def _hand_over_all(self, done: threading.Event) -> None:
        view = self._cluster.view
        with self._lock:
            before = (*self._last_placements, *self._placements_since)
        plan = HandoverPlan(self._own, self._shared.keys(), before, self._placement(view.nodes - {self._own}))
        self._carry_out(plan, view, frozenset())
        done.set()

    def _carry_out(
        self, plan: HandoverPlan, view: View, notified: frozenset[NodeId], *, displace: bool = True
    ) -> set[NodeId]:
        """Execute the plan, and send completion to ``notified``; returns the nodes that failed."""
        receivers = sorted(plan.receivers(), key=self._links.is_slow)
        completions = {
            node: self._offer(node, (), view, complete=True) for node in notified.difference(receivers)
        }
        failed: set[NodeId] = set()
        for number, node in enumerate(receivers):
            if self._cluster.view.digest != view.digest:
                failed.update(receivers[number:])
                break
            try:
                self._hand_over(node, plan, view, displace=displace)
                if node in notified:
                    completions[node] = self._offer(node, (), view, complete=True)
            except NearsightError as error:
                self.counts.failed += 1
                self._log.debug("hand-over failed", node=shown(node), reason=str(error))
                failed.add(node)
        return failed | {node for node, future in completions.items() if future.exception() is not None}

    def _hand_over(self, node: NodeId, plan: HandoverPlan, view: View, *, displace: bool) -> None:
        """Send a node the digests of its part of the plan, then the entries that it requests."""
        keys = plan.offers(node)
        for start in range(0, len(keys), OFFERED_AT_ONCE):
            batch = keys[start : start + OFFERED_AT_ONCE]
            digests = self._shared.digests(batch)
            offer = [DigestMessage(key=key, digest=digest) for key, digest in digests.items()]
            response = message_of(self._offer(node, offer, view).result(), OfferResponse)
            wanted = set(response.wanted) & digests.keys()
            plan.confirmed(node, [key for key in batch if key not in wanted])
            for entries in _batches(self._shared.entries_of(wanted)):
                refused = self._send(node, entries, view, displace=displace)
                plan.refused(node, refused)
                plan.confirmed(node, [entry.key for entry in entries if entry.key not in refused])
            # Requested entries that have expired since then need not be sent.
            plan.confirmed(node, wanted)

    def _send(self, node: NodeId, entries: Sequence[Entry], view: View, *, displace: bool) -> set[str]:
        """Send entries; returns the keys of those that the node refused."""
        request = WriteRequest(
            entries=map(self._shared.encode, entries), view=view.digest, only_if_room=not displace
        )
        size = request.ByteSize()
        timeout_s = self._settings.read_timeout_s + size / SLOWEST_BYTES_PER_S
        reply = self._links.call(node, WRITE, request, timeout_s=timeout_s).result()
        response = message_of(reply, WriteResponse)
        self.counts.sent += len(entries)
        self.counts.sent_bytes += size
        return {refusal.key for refusal in response.refused}

    def _offer(
        self,
        node: NodeId,
        entries: Sequence[DigestMessage],
        view: View,
        *,
        complete: bool = False,
        ask: bool = False,
    ) -> Future[Reply]:
        request = OfferRequest(
            entries=entries, node_id=self._own, view=view.digest, complete=complete, ask=ask
        )
        return self._links.call(node, OFFER, request, timeout_s=self._settings.read_timeout_s)


def _batches(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    """Split the entries into batches that fit into a message."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and (len(part) == SENT_AT_ONCE or size + size_bytes(entry) > SENT_BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(entry)
        size += size_bytes(entry)
    if part:
        yield part
