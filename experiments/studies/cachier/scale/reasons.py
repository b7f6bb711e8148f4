"""Why a target of table 6.4 is missed where it is: found out by looking at the rows, said beside the target.

A reason says what the numbers after it show; without numbers that show it, it does not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nearsight.experiments.studies.cachier.scale.configurations import EDGE, FULL
from nearsight.experiments.studies.cachier.scale.operating_point import CLASSES, NETWORK, SECTIONS, VISITORS
from nearsight.experiments.studies.cachier.scale.plan import MEASURED, PAPER, TESTBED
from nearsight.experiments.twin.session import ONLY_CLOUD

_AS_THE_EDGE = (
    "a Nexus 7 computes six times as long as the edge, so that the full system leaves nearly all photos to "
    "the edge, as section 6.7 says it does under low load, and is as fast as the edge is"
)
_CHEAP_MISSES = (
    "with few classes the cloud is fast, misses are cheap, and the edge holds fewer objects on purpose: the "
    "light end is faster than the dissertation's, the heavy end does not grow out of hand"
)

REASONS: Mapping[tuple[str, str, str], str] = MappingProxyType(
    {
        (MEASURED, VISITORS, EDGE): "our classifier is too fast for that: the edge's cores stay nearly idle",
        (
            TESTBED,
            VISITORS,
            ONLY_CLOUD,
        ): "10 visitors fill neither the link nor the cloud's cores with our classifier; "
        "on the twin it takes 1.2 times as long with 40, and breaks down with 80",
        (TESTBED, VISITORS, EDGE): "our classifier is too fast for that: the edge's cores stay nearly idle",
        (TESTBED, VISITORS, FULL): "all devices share the cores of one machine, and ten hinder each other",
        (
            MEASURED,
            SECTIONS,
            EDGE,
        ): "with our classifier lookups hardly take longer among more than a hundred "
        "objects, as the edge's part shows, and extraction and the way to the edge do not grow at all",
        (MEASURED, SECTIONS, FULL): _AS_THE_EDGE,
        (
            MEASURED,
            CLASSES,
            ONLY_CLOUD,
        ): "with our classifier lookups take no longer among more classes, as the "
        "cloud's part shows, and most of the time is the network's",
        (PAPER, SECTIONS, FULL): "with one section the edge is faster than the devices, and they leave the "
        "photos to it; from two sections on it is flat",
        (PAPER, CLASSES, EDGE): _CHEAP_MISSES,
        (PAPER, CLASSES, FULL): _CHEAP_MISSES,
        (
            PAPER,
            NETWORK,
            EDGE,
        ): "where misses cost more, the edge holds more objects and looks among them longer",
    }
)
"""By costs or, where daemons are real, the testbed; variable; and configuration."""


def reason(world: str, variable: str, tiers: str) -> str:
    """What is known; empty if nothing is."""
    found = REASONS.get((world, variable, tiers), "")
    return f"{found}. " if found else ""
