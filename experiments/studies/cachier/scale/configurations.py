"""The configurations in the figures of chapter 6: those of 6.2.3, and cooperating devices (5.4.4.1)."""

from __future__ import annotations

from collections.abc import Mapping

from nearsight.experiments.twin.session import (
    ADAPTIVE,
    BOUNDED,
    COOPERATIVE,
    LOAD_BALANCED,
    ONLY_CLOUD,
    PREFETCHING,
)

EDGE = LOAD_BALANCED
"""Stands for the "Edge Cache" of table 6.4, which does not say which of the two it is."""
FULL = ADAPTIVE
"""The dissertation's full system."""

NAMES: Mapping[str, str] = {
    ONLY_CLOUD: "only cloud",
    LOAD_BALANCED: "load-balanced edge",
    BOUNDED: "bounded edge",
    PREFETCHING: "prefetching",
    ADAPTIVE: "adaptive extraction",
    COOPERATIVE: "cooperative",
}
COLOURS: Mapping[str, str] = {
    ONLY_CLOUD: "#c2571a",
    LOAD_BALANCED: "#1f6f8b",
    BOUNDED: "#24415c",
    PREFETCHING: "#e0a33a",
    ADAPTIVE: "#4f7a28",
    COOPERATIVE: "#9a4f8a",
}
ORDER = tuple(NAMES)
"""Each configuration adds a feature to the one before; the bounded edge replaces load balancing."""
