"""The configurations of the dissertation's evaluation (6.2.3) as settings of a testbed, by the twin's names.

An inventory needs to name none of them. Each contribution stands on those before it: with recognition on the
devices, the edge bounds its computing time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.testbed.inventory import ConfigurationSpec, Inventory

ONLY_CLOUD = "only-cloud"
FIXED_FEATURES = 600
_PREFETCH = "recognizer.prefetch.enabled"
_BOUNDED = {"multi_user": "bounded"}

BUILT_IN: Mapping[str, ConfigurationSpec] = MappingProxyType(
    {
        ONLY_CLOUD: ConfigurationSpec(edges=False, device={_PREFETCH: False}),
        "load-balanced": ConfigurationSpec(edge={"multi_user": "load-balanced"}, device={_PREFETCH: False}),
        "bounded": ConfigurationSpec(edge=_BOUNDED, device={_PREFETCH: False}),
        "prefetching": ConfigurationSpec(
            edge=_BOUNDED, device={_PREFETCH: True, "recognizer.prefetch.features": FIXED_FEATURES}
        ),
        "prefetching-adaptive": ConfigurationSpec(edge=_BOUNDED, device={_PREFETCH: True}),
        "cooperative": ConfigurationSpec(
            edge=_BOUNDED, device={_PREFETCH: True, "recognizer.peers.enabled": True}
        ),
    }
)
"""The five of 6.2.3, and devices that share what they fetched (chapter 5)."""


def chosen(inventory: Inventory) -> Mapping[str, ConfigurationSpec]:
    """What is compared: what ``replay.configurations`` names; else the inventory's own; else all built in.

    Raises
    ------
    ConfigurationError
        If one of a name does not exist, or needs an edge where there is none.
    """
    known = {**BUILT_IN, **inventory.configurations}
    named = inventory.replay.configurations if inventory.replay is not None else ()
    names = named or tuple(inventory.configurations) or tuple(BUILT_IN if inventory.edges else (ONLY_CLOUD,))
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"replay.configurations: there is no {unknown[0]!r}", advice=f"choose from {', '.join(known)}"
        )
    for name in names:
        if not inventory.edges and known[name].edges and name not in inventory.configurations:
            raise ConfigurationError(f"the configuration {name!r} needs an edge", advice="add [edges.NAME]")
    return {name: known[name] for name in names}
