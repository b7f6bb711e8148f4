"""Counts of a node as facts for a person, in display order."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.device.peers.discovery import BeaconCounts
from nearsight.device.peers.handover_worker import HandoverCounts
from nearsight.device.peers.local_store import StoreCounts
from nearsight.device.peers.membership import MembershipCounts
from nearsight.device.peers.peers_report import HOLDS
from nearsight.device.peers.store_calls import ClientCounts
from nearsight.device.peers.store_service import ServedCounts


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Everything that a node counts; presence only once it has started."""

    beacons: BeaconCounts | None
    presence: MembershipCounts | None
    client: ClientCounts
    served: ServedCounts
    handover: HandoverCounts
    store: StoreCounts


def facts_of(counts: NodeCounts, keys: int, store_bytes: int, *, settled: bool) -> list[tuple[str, str]]:
    """The facts."""
    client, served, handover, store = counts.client, counts.served, counts.handover, counts.store
    facts = []
    if counts.beacons is not None:
        beacons = counts.beacons
        facts += [
            ("beacons sent", f"{beacons.sent}, {beacons.sent_bytes} bytes, {beacons.send_errors} not sent"),
            ("beacons heard", f"{beacons.received}, {beacons.received_bytes} bytes"),
            ("beacons ignored", f"{beacons.malformed} malformed, {beacons.strangers} of strangers"),
        ]
    if counts.presence is not None:
        presence = counts.presence
        facts += [
            ("peers", f"{presence.joined} joined, {presence.gone} gone, {presence.moved} moved"),
            ("pings", f"{presence.pings}, {presence.pings_failed} failed"),
            ("identity conflicts", f"{presence.conflicts}, {presence.impostors} impostors"),
            ("over the limit of peers", str(presence.over_limit)),
            ("slept", str(presence.slept)),
        ]
    facts += [
        (HOLDS, f"{keys} keys, {store_bytes} bytes, {'complete' if settled else 'incomplete for now'}"),
        ("let go", f"{store.expired} expired, {store.evicted} evicted, {store.refused} refused"),
        ("reads", f"{client.reads}, {client.own_reads} answered here, {client.hedged_reads} asked twice"),
        ("writes", str(client.writes)),
        ("failed", f"{client.failed} reads and writes, {client.lies} absurd answers"),
        ("served to peers", f"{served.reads} reads, {served.writes} writes, {served.refused} refused"),
        ("handed over", f"{handover.sent} entries, {handover.sent_bytes} bytes, {handover.failed} failures"),
        ("taken over", f"{served.handed_over} entries, {handover.dropped} dropped"),
    ]
    return facts
