"""Moves entries to their replicas after the membership changed, and synchronises the replicas (5.4.2).

One background thread does this. It sends digests of the entries that other nodes should hold, then the
entries that they request, then a completion message (see `View`). Failed steps are retried until they succeed
or the receiver leaves.

A node that holds an entry offers it to its new replicas. A node that is no replica offers it to all replicas,
and a later sweep drops it once each of them has it. Devices may have different views for a while. All compute
the same ranking, so a node that drops an entry leaves it to nodes with a higher rank: two nodes never rely on
each other's copy.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import xxhash

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.call import Reply
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.routing.cluster_view import View, rank
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
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
_MOST_FORMER_NODES = 8192

Offers = Mapping[NodeId, Sequence[str]]
"""The keys of the entries to offer to each node."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members since the last completed hand-over, after which every key was on its replicas."""

    ever: frozenset[NodeId] = frozenset()
    """All nodes that were members at some time."""
    always: frozenset[NodeId] = frozenset()
    """Those that were members all the time, without a restart. Empty: it is unknown what each node has."""

    def combined_with(self, other: Members) -> Members:
        """The members during both times; unknown if there were too many."""
        ever = self.ever | other.ever
        return Members(ever, self.always & other.always) if len(ever) <= _MOST_FORMER_NODES else Members()

    def offers(
        self,
        own: NodeId,
        keys: Iterable[str],
        nodes: frozenset[NodeId],
        replicas: int,
        unsure: Collection[str] = (),
    ) -> Offers:
        """The entries that one node must offer to others.

        A node that is among the first ``replicas`` of all former members was a replica all the time, and has
        the entry already.

        Parameters
        ----------
        own : NodeId
            The node that offers.
        keys : iterable of str
            The keys that it holds.
        nodes : frozenset of NodeId
            The current members, without ``own`` when it leaves.
        replicas : int
            Number of replicas of each key.
        unsure : collection of str
            Those keys that arrived or changed since: it is unknown which nodes have them.

        Returns
        -------
        mapping
            For each node first the keys that it lacks. Then those that it should have, but of which ``own``
            is no replica: a node that leaves may run out of time.
        """
        lacked, held = defaultdict[NodeId, list[str]](list), defaultdict[NodeId, list[str]](list)
        everybody = self.ever | nodes
        for key in keys:
            ranking = rank(key, everybody)
            having = self.always.intersection(ranking[:replicas]) if key not in unsure else ()
            receivers = [node for node in ranking if node in nodes][:replicas]
            for node in receivers:
                if node not in having:
                    lacked[node].append(key)
                elif own not in receivers:
                    held[node].append(key)
        return {node: lacked[node] + held[node] for node in {**lacked, **held} if node != own}


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
        self._members = Members(route.cluster.view.nodes, route.cluster.view.nodes)
        self._notify_all = False
        self._requesters: set[NodeId] = set()
        self._pause_s = SETTLE_AFTER_S
        self._changed_s = float("-inf")
        self._requested_s: dict[NodeId, float] = {}
        # Used only by the worker's thread.
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
        # A restarted node holds nothing, as if it had left and joined.
        stayed = {node for node, _ in before.incarnations.items() & after.incarnations.items()}
        now_s = self._clock.monotonic()
        with self._lock:
            self._members = self._members.combined_with(
                Members(before.nodes | after.nodes, frozenset(stayed))
            )
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
            self._members = self._members.combined_with(Members(nodes, nodes - {node}))
            self._requesters.add(node)
        self._schedule()

    def resynchronise(self) -> None:
        """Offer everything to all nodes and request their offers, after a suspension or change of address."""
        with self._lock:
            self._members = Members()
            self._notify_all = True
        self._schedule()
        self._worker.submit(self._query_missing, name="query")

    def leave(self, timeout_s: float) -> None:
        """Hand over each entry to its replicas without this node; blocks for ``timeout_s`` at most."""
        done = threading.Event()
        self._worker.submit(lambda: self._hand_over_all(done))
        done.wait(timeout_s)

    def _schedule(self, after_s: float = SETTLE_AFTER_S) -> None:
        self._worker.submit(self._run, name="handover", after_s=after_s)

    def _run(self) -> None:
        """Offer the entries that changes of the view, misplaced entries and requests of nodes require."""
        with self._lock:
            view = self._cluster.view
            members, self._members = self._members, Members(view.nodes, view.nodes)
            misplaced, self._misplaced = self._misplaced, set()
            notify_all, self._notify_all = self._notify_all, False
            requesters, self._requesters = self._requesters, set()
            if notify_all:
                longest_s = max(SETTLE_AFTER_S, PAUSE_PER_NODE_S * len(view.nodes))
                self._pause_s = min(2 * self._pause_s, longest_s)
        notified = (view.nodes if notify_all else view.nodes & requesters) - {self._own}
        changed = members != Members(view.nodes, view.nodes)
        keys = dict.fromkeys((*(self._shared.keys() if changed else ()), *misplaced))
        failed, _ = self._carry_out(self._offers(members, keys, view.nodes, misplaced), view, notified)
        if not failed:
            self._failures = 0
            return
        with self._lock:
            self._misplaced.update(key for key in misplaced if key in self._shared.entries)
            self._members = self._members.combined_with(members)
            # Nodes that received completion need no second message; after another change all nodes
            # receive one.
            self._requesters |= failed & notified
        self._schedule(min(SWEEP_EVERY_S, RETRY_AFTER_S * 2**self._failures))
        self._failures = min(self._failures + 1, 5)

    def _offers(
        self, members: Members, keys: Iterable[str], nodes: frozenset[NodeId], unsure: Collection[str] = ()
    ) -> Offers:
        return members.offers(self._own, keys, nodes, self._settings.replicas, unsure)

    def _sweep(self) -> None:
        """Compare part of the entries with the other replicas; drop those that only others should hold."""
        self._worker.submit(self._sweep, name="sweep", after_s=SWEEP_EVERY_S)
        view, turn, held = self._cluster.view, self._turn, self._shared.keys()
        keys = [key for key in held if (xxhash.xxh3_64_intdigest(key.encode()) - turn) % SWEEP_TURNS == 0]
        self._turn += 1
        digests = self._shared.digests(keys)
        _, missed = self._carry_out(self._offers(Members(), keys, view.nodes), view, displace=False)
        spare = [key for key in digests if self._own not in view.ranking(key)[: self._settings.replicas]]
        if self._cluster.view is view:
            self.counts.dropped += self._shared.drop({k: digests[k] for k in spare if k not in missed})

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
        offers = self._offers(self._members, self._shared.keys(), view.nodes - {self._own})
        self._carry_out(offers, view)
        done.set()

    def _carry_out(
        self,
        offers: Offers,
        view: View,
        notified: frozenset[NodeId] = frozenset(),
        *,
        displace: bool = True,
    ) -> tuple[set[NodeId], set[str]]:
        """Hand over, and send completion to ``notified``.

        Returns
        -------
        the nodes that failed; the keys that were not handed over to all of their nodes
        """
        receivers = sorted(offers, key=self._links.is_slow)
        completions = {
            node: self._offer(node, (), view, complete=True) for node in notified.difference(receivers)
        }
        failed, missed = set[NodeId](), set[str]()
        for number, node in enumerate(receivers):
            if self._cluster.view.digest != view.digest:
                failed.update(receivers[number:])
                break
            try:
                missed |= self._hand_over(node, offers[node], view, displace=displace)
                if node in notified:
                    completions[node] = self._offer(node, (), view, complete=True)
            except NearsightError as error:
                self.counts.failed += 1
                self._log.debug("hand-over failed", node=shown(node), reason=str(error))
                failed.add(node)
        missed.update(*(offers[node] for node in failed))
        failed.update(node for node, future in completions.items() if future.exception() is not None)
        return failed, missed

    def _hand_over(self, node: NodeId, keys: Sequence[str], view: View, *, displace: bool) -> set[str]:
        """Send a node digests, then the entries that it requests; returns the keys that it refused."""
        refused = set[str]()
        for start in range(0, len(keys), OFFERED_AT_ONCE):
            digests = self._shared.digests(keys[start : start + OFFERED_AT_ONCE])
            offer = [DigestMessage(key=key, digest=digest) for key, digest in digests.items()]
            response: OfferResponse = self._offer(node, offer, view).result().message
            for entries in _batches(self._shared.entries_of(set(response.wanted) & digests.keys())):
                refused |= self._send(node, entries, view, displace=displace)
        return refused

    def _send(self, node: NodeId, entries: Sequence[Entry], view: View, *, displace: bool) -> set[str]:
        """Send entries; returns the keys of those that the node refused."""
        request = WriteRequest(
            entries=map(self._shared.encode, entries), view=view.digest, only_if_room=not displace
        )
        size = request.ByteSize()
        timeout_s = self._settings.read_timeout_s + size / SLOWEST_BYTES_PER_S
        reply = self._links.call(node, WRITE, request, timeout_s=timeout_s).result()
        response: WriteResponse = reply.message
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
