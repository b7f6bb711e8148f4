"""The 13 bytes that every device broadcasts: "I am here, on this port" (Cachier dissertation, 5.3.2).

======  =====  ==========================================
offset  bytes  field, big endian
======  =====  ==========================================
0       2      ``ns``
2       1      version
3       2      TCP port that answers pings; 0: going away
5       8      node id
======  =====  ==========================================

The address is that of the datagram. Anybody can send a beacon: it makes receivers ask over TCP, no more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.node_id import NodeId, is_node_id

MAGIC = b"ns"
VERSION = 1
_FORMAT = struct.Struct(">2sBHQ")
BEACON_BYTES = _FORMAT.size
UDP_IP_HEADER_BYTES = 28
"""What a datagram over IPv4 adds to its content."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """A sign of life.

    Parameters
    ----------
    node_id : NodeId
        Who claims to be there.
    port : int
        Its TCP port; 0 if it goes away.
    """

    node_id: NodeId
    port: int

    @property
    def leaving(self) -> bool:
        """Whether the sender says that it goes away."""
        return self.port == 0


def encode_beacon(beacon: Beacon) -> bytes:
    """The datagram, `BEACON_BYTES` long."""
    return _FORMAT.pack(MAGIC, VERSION, beacon.port, beacon.node_id)


def decode_beacon(data: bytes) -> Beacon:
    """The beacon in a datagram from anybody.

    Raises
    ------
    InvalidMessage
        If it is none.
    """
    if len(data) != BEACON_BYTES:
        raise InvalidMessage(f"a beacon has {BEACON_BYTES} bytes, not {len(data)}")
    magic, version, port, node_id = _FORMAT.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise InvalidMessage(f"no beacon of version {VERSION}")
    if not is_node_id(node_id):
        raise InvalidMessage("a beacon without a node id")
    return Beacon(NodeId(node_id), port)
