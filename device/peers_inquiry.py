"""Who is near, asked of device daemons over their local endpoints: what ``nearsight peers`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from nearsight.common.errors import NearsightError, NotFound
from nearsight.common.operation.inquiry import Inquiry, ask_all
from nearsight.common.operation.status import format_bytes, format_duration
from nearsight.common.rpc.security import ClientSecurity
from nearsight.device.peers.presence.identity import shown
from nearsight.device.peers.report import PeersReport, PeerStatus, report_from_proto
from nearsight.protos import peers_pb2

CLIENT_ID = "nearsight-peers"
OFF = "it shares with nobody: recognizer.peers or recognizer.prefetch is not enabled, or it is no device"


@dataclass(frozen=True, slots=True)
class DevicePeers:
    """What one device said about its peers, or why it said nothing.

    Attributes
    ----------
    endpoint : str
        As asked.
    report : PeersReport, optional
        None if there was no answer.
    error : str
        Why there was none.
    """

    endpoint: str
    report: PeersReport | None = None
    error: str = ""

    def to_json(self) -> dict[str, object]:
        """The fields; ids as people see them, facts as a mapping."""
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
    endpoints: Sequence[str], *, timeout_s: float, security: ClientSecurity | None = None
) -> tuple[DevicePeers, ...]:
    """Ask all device daemons at the same time; takes ``timeout_s`` at most.

    Parameters
    ----------
    endpoints : sequence of str
        ``tcp://host:port`` each, where applications connect.
    timeout_s : float
        How long to wait for an answer.
    security : ClientSecurity, optional
        The keys, if the daemons use encryption.
    """
    answers = ask_all(endpoints, _INQUIRY, timeout_s=timeout_s, security=security)
    return tuple(map(_device_peers, endpoints, answers))


def _device_peers(endpoint: str, answer: PeersReport | NearsightError) -> DevicePeers:
    if isinstance(answer, NotFound):
        return DevicePeers(endpoint, error=OFF)
    if isinstance(answer, NearsightError):
        return DevicePeers(endpoint, error=str(answer))
    return DevicePeers(endpoint, answer)


_INQUIRY = Inquiry(
    CLIENT_ID,
    peers_pb2.DESCRIPTOR.services_by_name["PeerReports"].methods_by_name["GetPeers"],
    peers_pb2.GetPeersRequest(),
    peers_pb2.PeersReport,
    report_from_proto,
)


TABLE_COLUMNS = (
    "device",
    "node",
    "address",
    "state",
    "heard",
    "here for",
    "keys",
    "store",
    "models",
    "sent",
    "received",
    "ping ms",
)
"""Headings of `table_of`."""


def table_of(report: PeersReport) -> list[tuple[str, ...]]:
    """One row per peer, by name: see `TABLE_COLUMNS`."""
    return [_row(peer) for peer in _by_name(report)]


def lines_of(report: PeersReport) -> list[str]:
    """The same for a terminal that the table does not fit: three lines per peer."""
    return [line for peer in _by_name(report) for line in _lines(peer)]


def _by_name(report: PeersReport) -> list[PeerStatus]:
    return sorted(report.peers, key=lambda peer: (peer.device_id, peer.node_id))


def _lines(peer: PeerStatus) -> tuple[str, ...]:
    name, node, address, state, heard, here, keys, store, models, sent, received, ping_ms = _row(peer)
    return (
        f"  {name}, node {node}, at {address}",
        f"    {state}, heard {heard}, here for {here}, ping {ping_ms} ms",
        f"    holds {keys} keys, {store}, and {models} models; {sent} sent, {received} received",
    )


def _row(peer: PeerStatus) -> tuple[str, ...]:
    return (
        peer.device_id or "?",
        shown(peer.node_id),
        peer.endpoint,
        peer.state,
        f"{peer.heard_s_ago:.1f} s ago",
        format_duration(peer.present_s),
        str(peer.keys),
        format_bytes(peer.store_bytes),
        str(peer.models),
        format_bytes(peer.sent_bytes),
        format_bytes(peer.received_bytes),
        f"{peer.round_trip_ms:.1f}",
    )
