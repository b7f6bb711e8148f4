"""The cells of a sweep: every configuration, at every point of the sweep, with every set of traces.

This module is pure: it accesses no node. All configurations of a run use the same traces, and each run uses
other traces (Cachier dissertation, 6.2.7). The configurations of the dissertation's evaluation (6.2.3) are
built in, with the twin's names. The points are those of table 6.2: one of four variables is varied at a time.
The baseline is given by ``[replay]`` and ``[[links]]``. A value of ``[sweep]`` that equals the baseline's is
not measured twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import TypeVar

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.testbed.inventory import (
    ConfigurationSpec,
    Host,
    Inventory,
    ReplaySpec,
    ServerSpec,
    Value,
)

S = TypeVar("S", bound=ServerSpec)
BASELINE = "baseline"
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
"""The five of 6.2.3, and devices that share the models they fetched (chapter 5). Each contribution builds on
those before it: with recognition on the devices, the edge bounds its computing time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the sweep."""

    variable: str = ""
    """The varied variable: "visitors", "sections", "classes", "network"; empty: none."""
    value: str = ""
    """A number, or the name of a network."""

    @property
    def name(self) -> str:
        """Name for users, and part of a path."""
        return f"{self.variable}-{self.value}" if self.variable else BASELINE


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay."""

    configuration: str
    """Name of the configuration."""
    point: Point
    """Point of the sweep."""
    run: int
    """Number of the set of traces, from 1."""

    @property
    def name(self) -> str:
        """Name for users, and path."""
        return f"{self.configuration}/{self.point.name}/run-{self.run}"


@dataclass(frozen=True, slots=True)
class Visitor:
    """One device and its visitor in one run."""

    host: Host
    """The host of the device."""
    edge: str
    """The edge that the device asks first; empty: none."""
    name: str
    """Name of the visitor in the trace."""
    phase_s: float
    """Delay of the start [s], so that devices do not all send at the same moment."""


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


def compared_configurations(inventory: Inventory) -> Mapping[str, ConfigurationSpec]:
    """Configurations to compare: ``replay.configurations``, else the inventory's own, else built-in ones.

    Of the built-in ones, an inventory without edges uses only-cloud; any other uses all.

    Raises
    ------
    ConfigurationError
        If a named configuration does not exist, or needs an edge but there is none.
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


def baseline_of(inventory: Inventory) -> dict[str, int]:
    """Values of the variables at the baseline; 0 classes: all objects in the cloud's database."""
    replay = replay_of(inventory)
    devices = sum(inventory.nodes[device.node].count for device in inventory.devices.values())
    return {"visitors": replay.visitors or devices, "sections": replay.sections, "classes": replay.classes}


def points(inventory: Inventory) -> tuple[Point, ...]:
    """All points of an inventory, in the order of the file; only the baseline if nothing is varied."""
    baseline = baseline_of(inventory)
    varied = [
        Point() if value == baseline[variable] else Point(variable, str(value))
        for variable in baseline
        for value in getattr(inventory.sweep, variable)
    ]
    varied += [Point("network", name) for name in inventory.networks]
    return tuple(dict.fromkeys(varied or [Point()]))


def at_point(inventory: Inventory, point: Point) -> Inventory:
    """The inventory with the point's variable set; a network replaces the shape of all links to the cloud."""
    if not point.variable:
        return inventory
    if point.variable == "network":
        shape = inventory.networks[point.value].model_dump()
        links = (
            link.model_copy(update=shape) if link.target == inventory.cloud.node and not link.via else link
            for link in inventory.links
        )
        return inventory.model_copy(update={"links": tuple(links)})
    replay = replay_of(inventory).model_copy(update={point.variable: int(point.value)})
    return inventory.model_copy(update={"replay": replay})


def cells(inventory: Inventory) -> tuple[Cell, ...]:
    """All cells to measure; all configurations of a run and point are adjacent."""
    return tuple(
        Cell(configuration, point, run)
        for run in range(1, replay_of(inventory).runs + 1)
        for point in points(inventory)
        for configuration in compared_configurations(inventory)
    )


def inventory_of(inventory: Inventory, cell: Cell) -> Inventory:
    """The inventory of one cell: its settings and its point, without edges if the configuration has none."""
    configuration = compared_configurations(inventory)[cell.configuration]
    edges = inventory.edges if configuration.edges else {}
    changed = at_point(inventory, cell.point).model_copy(
        update={
            "edges": {name: _with_settings(edge, configuration.edge) for name, edge in edges.items()},
            "devices": {
                name: _with_settings(device, configuration.device).model_copy(
                    update={} if configuration.edges else {"edge": ""}
                )
                for name, device in inventory.devices.items()
            },
        }
    )
    used = set(changed.pairs())
    kept = tuple(link for link in changed.links if (link.source, link.target) in used)
    return changed.model_copy(update={"links": kept})


def _with_settings(spec: S, settings: Mapping[str, Value]) -> S:
    return spec.model_copy(update={"settings": {**spec.settings, **settings}})


def visitors_of(inventory: Inventory, run: int, names: Sequence[str]) -> tuple[Visitor, ...]:
    """Assign the trace's visitors to devices in a run; no visitor is used in two runs.

    If only some devices take part, their visitors are the same at all points of a run.

    Parameters
    ----------
    inventory : Inventory
        Inventory of the cell.
    run : int
        Number of the run, from 1.
    names : sequence of str
        Visitors of the trace that are not part of the warm-up.

    Raises
    ------
    ConfigurationError
        If there are too few visitors.
    """
    tables = [
        [(host, inventory.edge_of(device)) for host in inventory.hosts_of(device.node)]
        for device in inventory.devices.values()
    ]
    # Interleaved, so that a subset of the devices is divided equally among the edges.
    carried = [one for one in chain.from_iterable(zip_longest(*tables)) if one is not None]
    first = (run - 1) * len(carried)
    if len(names) < first + len(carried):
        raise ConfigurationError(
            f"{run} runs need {run * len(carried)} visitors, but without those of the warm-up there are "
            f"{len(names)}",
            advice="fewer devices or runs, a smaller warm_up, or more visitors in the trace",
        )
    taking_part = carried[: replay_of(inventory).visitors or len(carried)]
    return tuple(
        Visitor(host, edge, names[first + index], index / len(taking_part))
        for index, (host, edge) in enumerate(taking_part)
    )


def fingerprint(inventory: Inventory, cell: Cell, contents: str) -> str:
    """Digest that identifies the cell, to check whether stored rows belong to it.

    Parameters
    ----------
    inventory : Inventory
        Inventory of the sweep.
    cell : Cell
        One cell of the sweep.
    contents : str
        Digest of the files that the inventory names.
    """
    whole = inventory_of(inventory, cell).model_dump(mode="json", by_alias=True)
    for name in ("configurations", "networks", "sweep", "profiles", "wheel"):
        del whole[name]
    for name in ("runs", "configurations"):
        del whole["replay"][name]
    whole["hosts"] = [host.model_dump(mode="json") for host in inventory.hosts()]
    return hashlib.sha256(json.dumps([whole, cell.name, contents], sort_keys=True).encode()).hexdigest()[:16]
