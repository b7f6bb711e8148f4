"""The networks between a building and the cloud of the dissertation's experiments."""

from __future__ import annotations

from types import MappingProxyType

from nearsight.experiments.links.link import LinkShape

UNSHAPED = LinkShape()
"""What daemons are started and warmed over: that is not part of any measurement."""

FIGURE_3_2 = LinkShape(rtt_ms=40.0, up_mbps=5.0, down_mbps=5.0)

TABLE_6_3 = MappingProxyType(
    {
        "Slow": LinkShape(rtt_ms=40.0, up_mbps=2.0, down_mbps=10.0),
        "Medium": LinkShape(rtt_ms=30.0, up_mbps=5.0, down_mbps=10.0),
        "Fast": LinkShape(rtt_ms=20.0, up_mbps=10.0, down_mbps=20.0),
        "SuperFast": LinkShape(rtt_ms=10.0, up_mbps=20.0, down_mbps=40.0),
    }
)


def in_words(shape: LinkShape) -> str:
    """A network for a caption, such as "40 ms, 5 Mbit/s"."""
    rates = [f"{rate:g}" for rate in (shape.up_mbps, shape.down_mbps)]
    both = rates[0] if rates[0] == rates[1] else f"{rates[0]}↑ {rates[1]}↓"
    return f"{shape.rtt_ms:g} ms, {both} Mbit/s"
