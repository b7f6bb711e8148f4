"""What each tier spent on a request: the timings that every response carries."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.protos import rpc_pb2


@dataclass(frozen=True, slots=True)
class Hop:
    """The share of one tier in the answer to a request.

    Parameters
    ----------
    tier : str
        "cloud", "edge" or "device".
    queue_ms : float
        From the arrival to the start of the work.
    compute_ms : float
        From the start of the work to the response, without waiting for the next tier.
    next_tier_ms : float
        Round trips to the next tier; 0 if it was not asked.
    received_bytes : int
        All frames of the request.
    sent_bytes : int
        Message and blobs of the response; its header carries this number and is not counted.
    """

    tier: str
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    next_tier_ms: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0


def add_hop(header: rpc_pb2.ResponseHeader, hop: Hop) -> None:
    """Append the wire form of a hop to a response."""
    header.hops.add(
        tier=hop.tier,
        queue_ms=hop.queue_ms,
        compute_ms=hop.compute_ms,
        next_tier_ms=hop.next_tier_ms,
        received_bytes=hop.received_bytes,
        sent_bytes=hop.sent_bytes,
    )


def hop_from_proto(message: rpc_pb2.Hop) -> Hop:
    """The hop that a wire form stands for."""
    return Hop(
        message.tier,
        message.queue_ms,
        message.compute_ms,
        message.next_tier_ms,
        message.received_bytes,
        message.sent_bytes,
    )
