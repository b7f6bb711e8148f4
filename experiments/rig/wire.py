"""What really went over a node's network interface, headers and all: the kernel's own counters.

They count Ethernet frames without preamble and checksum. In a network namespace of its own a process sees
only its own traffic; on loopback there is no such counter per process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

_LOOPBACK = "lo"
_RECEIVED_BYTES, _RECEIVED_PACKETS, _SENT_BYTES, _SENT_PACKETS, _SENT_DROPPED = 0, 1, 8, 9, 11


@dataclass(frozen=True, slots=True)
class Wire:
    """Counters of all interfaces but loopback; all zero if there are none.

    Attributes
    ----------
    sent_packets, sent_bytes, received_packets, received_bytes : int
        Since the interfaces exist.
    dropped_packets : int
        Not sent, as a queue was full.
    """

    sent_packets: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    dropped_packets: int = 0

    def to_json(self) -> dict[str, int]:
        """The fields."""
        return asdict(self)


def read_wire(path: Path = Path("/proc/self/net/dev")) -> Wire:
    """The counters now; zeros where the system has no such file."""
    try:
        lines = path.read_text().splitlines()[2:]
    except OSError:
        return Wire()
    rows = [
        [int(number) for number in numbers.split()]
        for name, _, numbers in (line.partition(":") for line in lines)
        if name.strip() != _LOOPBACK
    ]

    def total(column: int) -> int:
        return sum(row[column] for row in rows)

    return Wire(
        sent_packets=total(_SENT_PACKETS),
        sent_bytes=total(_SENT_BYTES),
        received_packets=total(_RECEIVED_PACKETS),
        received_bytes=total(_RECEIVED_BYTES),
        dropped_packets=total(_SENT_DROPPED),
    )
