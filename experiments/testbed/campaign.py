"""What a testbed replays: every configuration, in every network, with every set of traces.

Pure: no node is touched. The traces of a run are the same for all configurations and networks; each run has
others (Cachier dissertation, 6.2.7).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.testbed.inventory import (
    ConfigurationSpec,
    Host,
    Inventory,
    LinkSpec,
    ReplaySpec,
    ServerSpec,
    Value,
)

S = TypeVar("S", bound=ServerSpec)

AS_IT_IS = "as-is"
"""Configuration and network of an inventory that names none."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay.

    Attributes
    ----------
    configuration, network : str
        Names in the inventory.
    run : int
        Which set of traces, from 1.
    """

    configuration: str
    network: str
    run: int

    @property
    def name(self) -> str:
        """For a person, and as a path."""
        return f"{self.configuration}/{self.network}/run-{self.run}"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who carries a device in one run.

    Attributes
    ----------
    host : Host
        The device.
    edge : str
        The edge that it asks first; empty: none.
    name : str
        In the trace.
    phase_s : float
        How much later than the others it starts: devices do not all send at the same moment.
    """

    host: Host
    edge: str
    name: str
    phase_s: float


def replay_of(inventory: Inventory) -> ReplaySpec:
    """The inventory's ``[replay]``.

    Raises
    ------
    ConfigurationError
        If it has none, or no devices.
    """
    if inventory.replay is None:
        raise ConfigurationError(
            "the inventory has no [replay]", advice="docs/testbed.md shows what `run` needs"
        )
    if not inventory.devices:
        raise ConfigurationError("the inventory has no devices", advice="add [devices.NAME]")
    return inventory.replay


def cells(inventory: Inventory) -> tuple[Cell, ...]:
    """Everything that is to be replayed, all configurations of a run next to each other."""
    runs = replay_of(inventory).runs
    return tuple(
        Cell(configuration, network, run)
        for run in range(1, runs + 1)
        for network in (list(inventory.networks) or [AS_IT_IS])
        for configuration in (list(inventory.configurations) or [AS_IT_IS])
    )


def inventory_of(inventory: Inventory, cell: Cell) -> Inventory:
    """The testbed of one cell: its settings, its network, without edges if they are not part of it."""
    configuration = inventory.configurations.get(cell.configuration, ConfigurationSpec())
    cloud = inventory.cloud.node
    links = inventory.links
    if cell.network in inventory.networks:
        shape = inventory.networks[cell.network].model_dump()
        links = tuple(
            LinkSpec.model_validate({"from": link.source, "to": link.target, **shape})
            if link.target == cloud
            else link
            for link in links
        )
    edges = inventory.edges if configuration.edges else {}
    changed = inventory.model_copy(
        update={
            "edges": {name: _with(edge, configuration.edge) for name, edge in edges.items()},
            "devices": {
                name: _with(device, configuration.device).model_copy(
                    update={} if configuration.edges else {"edge": ""}
                )
                for name, device in inventory.devices.items()
            },
        }
    )
    used = set(changed.pairs())
    kept = tuple(link for link in links if (link.source, link.target) in used)
    return changed.model_copy(update={"links": kept})


def _with(spec: S, settings: Mapping[str, Value]) -> S:
    return spec.model_copy(update={"settings": {**spec.settings, **settings}})


def visitors_of(inventory: Inventory, run: int, names: Sequence[str]) -> tuple[Visitor, ...]:
    """Who carries which device in a run: the trace's visitors in turn, none twice.

    Parameters
    ----------
    inventory : Inventory
        Of the cell.
    run : int
        From 1.
    names : sequence of str
        All visitors of the trace.

    Raises
    ------
    ConfigurationError
        If there are too few.
    """
    carried = [
        (host, inventory.edge_of(device))
        for device in inventory.devices.values()
        for host in inventory.hosts_of(device.node)
    ]
    first = (run - 1) * len(carried)
    if len(names) < first + len(carried):
        raise ConfigurationError(
            f"run {run} needs {len(carried)} visitors of its own, but the trace has only {len(names)}",
            advice="fewer devices or runs, or a longer trace",
        )
    return tuple(
        Visitor(host, edge, names[first + index], index / len(carried))
        for index, (host, edge) in enumerate(carried)
    )


def fingerprint(inventory: Inventory, cell: Cell) -> str:
    """Tells whether kept rows belong to this very cell."""
    whole = inventory_of(inventory, cell).model_dump(mode="json", by_alias=True)
    for name in ("configurations", "networks", "profiles", "wheel"):
        del whole[name]
    whole["replay"].pop("runs")
    whole["hosts"] = [host.model_dump(mode="json") for host in inventory.hosts()]
    return hashlib.sha256(json.dumps([whole, cell.name], sort_keys=True).encode()).hexdigest()[:16]
