"""Report of a device about its peers, for `nearsight peers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidMessage, NotFound
from nearsight.common.operation.inquiry import Securities, ask_all
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.beacons import BeaconCounts
from nearsight.device.peers.presence.identity import NodeId, is_node_id, shown
from nearsight.device.peers.presence.membership import MembershipCounts
from nearsight.device.peers.presence.peer import Peer, PingReply
from nearsight.device.peers.routing.connections import Traffic
from nearsight.device.peers.store.handover import HandoverCounts
from nearsight.device.peers.store.local_store import StoreCounts
from nearsight.device.peers.store.replica_calls import ClientCounts
from nearsight.device.peers.store.service import ServedCounts
from nearsight.protos import peers_pb2

HOLDS = "holds"
"""Name of the fact with the number of entries and whether a node's keys are complete."""


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer in a report."""

    node_id: NodeId
    """Its node id."""
    device_id: str
    endpoint: str
    state: str
    """Name of the device, endpoint, and "live", "suspect" or "joining"."""
    heard_s_ago: float
    present_s: float
    """Seconds since its last sign of life, and since it joined."""
    keys: int
    store_bytes: int
    models: int
    """Keys, bytes of entries and models that it held, according to its last answer."""
    sent_bytes: int
    received_bytes: int
    """Bytes of messages to and from it, without network headers."""
    round_trip_ms: float
    """Round-trip time of its last ping."""
    # The fields have the same names in `peers.proto`.

    @classmethod
    def of(cls, peer: Peer, traffic: Traffic, since: Callable[[float], float]) -> PeerStatus:
        """The current status of a peer; ``since`` returns the seconds since a time of `Peer`."""
        answer = peer.reply or PingReply(peer.node_id, 0)
        return cls(
            node_id=peer.node_id,
            device_id=peer.device_id,
            endpoint=peer.endpoint,
            state=peer.state.value,
            heard_s_ago=since(peer.heard_s),
            present_s=since(peer.since_s),
            keys=answer.keys,
            store_bytes=answer.store_bytes,
            models=answer.models,
            sent_bytes=traffic.sent_bytes,
            received_bytes=traffic.received_bytes,
            round_trip_ms=1000 * peer.round_trip_s,
        )


@dataclass(frozen=True, slots=True)
class PeersReport:
    """The peers of one device, and facts in display order."""

    node_id: NodeId
    device_id: str
    endpoint: str
    peers: Sequence[PeerStatus]
    facts: Sequence[tuple[str, str]]


def report_to_proto(report: PeersReport) -> peers_pb2.PeersReport:
    """The report as a message."""
    return peers_pb2.PeersReport(
        node_id=report.node_id,
        device_id=report.device_id,
        endpoint=report.endpoint,
        peers=[peers_pb2.PeerMessage(**asdict(peer)) for peer in report.peers],
        facts=[peers_pb2.FactMessage(name=name, value=value) for name, value in report.facts],
    )


def report_from_proto(message: peers_pb2.PeersReport) -> PeersReport:
    """The report in a message.

    Raises
    ------
    InvalidMessage
        If it contains an invalid node id.
    """
    if not all(is_node_id(number) for number in (message.node_id, *(p.node_id for p in message.peers))):
        raise InvalidMessage("the report contains an invalid node id")
    names = [field.name for field in fields(PeerStatus)]
    peers = tuple(PeerStatus(**{name: getattr(peer, name) for name in names}) for peer in message.peers)
    facts = tuple((fact.name, fact.value) for fact in message.facts)
    return PeersReport(NodeId(message.node_id), message.device_id, message.endpoint, peers, facts)


class PeerReportsService(Service):
    """Serves the report for `nearsight peers`.

    Parameters
    ----------
    report : callable
        Creates the report.
    """

    descriptor: ClassVar[ServiceDescriptor] = peers_pb2.DESCRIPTOR.services_by_name["PeerReports"]

    def __init__(self, report: Callable[[], PeersReport]) -> None:
        self._report = report

    def get_peers(self, request: peers_pb2.GetPeersRequest, context: CallContext) -> peers_pb2.PeersReport:
        """The current report."""
        del request, context
        return report_to_proto(self._report())


def presence_facts(beacons: BeaconCounts, presence: MembershipCounts) -> list[tuple[str, str]]:
    """Counters of beacons and peers as facts for people, in display order."""
    return [
        ("beacons sent", f"{beacons.sent}, {beacons.sent_bytes} bytes, {beacons.send_errors} not sent"),
        ("beacons received", f"{beacons.received}, {beacons.received_bytes} bytes"),
        ("beacons ignored", f"{beacons.malformed} malformed, {beacons.strangers} not allowed"),
        ("peers", f"{presence.joined} joined, {presence.gone} gone, {presence.moved} moved"),
        ("pings", f"{presence.pings}, {presence.pings_failed} failed"),
        ("identity conflicts", f"{presence.conflicts}, {presence.impostors} impostors"),
        ("ignored above the limit of peers", str(presence.over_limit)),
        ("times suspended", str(presence.slept)),
    ]


def store_facts(
    store: StoreCounts, client: ClientCounts, served: ServedCounts, handover: HandoverCounts
) -> list[tuple[str, str]]:
    """Counters of the store as facts for people, in display order."""
    return [
        ("removed", f"{store.expired} expired, {store.evicted} evicted, {store.refused} refused"),
        ("reads", f"{client.reads}, {client.own_reads} answered locally, {client.hedged_reads} hedged"),
        ("writes", f"{client.writes}, {client.refused} copies refused by devices"),
        ("failed", f"{client.failed} reads and writes, {client.invalid} invalid answers"),
        ("served to peers", f"{served.reads} reads, {served.writes} writes, {served.refused} refused"),
        ("handed over", f"{handover.sent} entries, {handover.sent_bytes} bytes, {handover.failed} failures"),
        ("received by hand-over", f"{served.handed_over} entries, {handover.dropped} dropped"),
    ]


OFF = "sharing is off: recognizer.peers or recognizer.prefetch is not enabled, or it is not a device daemon"


@dataclass(frozen=True, slots=True)
class DevicePeers:
    """The report of one device about its peers, or the error."""

    endpoint: str
    """The endpoint that was queried."""
    report: PeersReport | None = None
    """None if there was no answer."""
    error: str = ""
    """The reason if there was no answer."""

    @property
    def absent(self) -> bool:
        """Whether no daemon answered, not even that it does not share."""
        return self.error not in {"", OFF}

    def to_json(self) -> dict[str, object]:
        """The fields; ids in the format for people, facts as a mapping."""
        if self.report is None:
            return {"endpoint": self.endpoint, "error": self.error}
        return {
            "endpoint": self.endpoint,
            "error": "",
            "node_id": shown(self.report.node_id),
            "device_id": self.report.device_id,
            "peer_endpoint": self.report.endpoint,
            "peers": [asdict(peer) | {"node_id": shown(peer.node_id)} for peer in self.report.peers],
            "facts": dict(self.report.facts),
        }


def ask_peers(
    endpoints: Sequence[str], *, timeout_s: float, security: Securities = None
) -> tuple[DevicePeers, ...]:
    """Query all device daemons, at the endpoints where applications connect; see `ask_all`."""
    return ask_all(
        endpoints,
        peers_pb2.DESCRIPTOR.services_by_name["PeerReports"].methods_by_name["GetPeers"],
        peers_pb2.GetPeersRequest(),
        lambda endpoint, response: DevicePeers(endpoint, report_from_proto(response)),
        lambda endpoint, error: DevicePeers(
            endpoint, error=OFF if isinstance(error, NotFound) else str(error)
        ),
        timeout_s=timeout_s,
        security=security,
    )
