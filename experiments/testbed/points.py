"""Where a sweep measures: the four variables of the dissertation (table 6.2), one varied at a time.

The baseline is what ``[replay]`` and ``[[links]]`` say. A value of ``[sweep]`` that is the baseline's is not
measured twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.experiments.testbed.inventory import Inventory, ReplaySpec

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of the variables.

    Attributes
    ----------
    variable : str
        What is varied: "visitors", "sections", "classes", "network"; empty: nothing.
    value : str
        A number, or the name of a network.
    """

    variable: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """For a person, and as part of a path."""
        return f"{self.variable}-{self.value}" if self.variable else BASELINE


def baseline_of(inventory: Inventory, replay: ReplaySpec) -> dict[str, int]:
    """Values of the variables at the baseline; 0 classes: all that the cloud's database has."""
    devices = sum(inventory.nodes[device.node].count for device in inventory.devices.values())
    return {
        "visitors": replay.visitors or devices,
        "sections": replay.sections,
        "classes": replay.classes,
    }


def points(inventory: Inventory, replay: ReplaySpec) -> tuple[Point, ...]:
    """All points of an inventory, in the order of the file; only the baseline if nothing is varied."""
    baseline = baseline_of(inventory, replay)
    varied = [
        Point() if value == baseline[variable] else Point(variable, str(value))
        for variable in baseline
        for value in getattr(inventory.sweep, variable)
    ]
    varied += [Point("network", name) for name in inventory.networks]
    return tuple(dict.fromkeys(varied or [Point()]))


def at(inventory: Inventory, point: Point) -> Inventory:
    """The inventory with one variable set; a network is what all links are like that lead to the cloud."""
    if not point.variable:
        return inventory
    if point.variable == "network":
        shape = inventory.networks[point.value].model_dump()
        links = (
            link.model_copy(update=shape) if link.target == inventory.cloud.node and not link.via else link
            for link in inventory.links
        )
        return inventory.model_copy(update={"links": tuple(links)})
    if inventory.replay is None:
        return inventory
    replay = inventory.replay.model_copy(update={point.variable: int(point.value)})
    return inventory.model_copy(update={"replay": replay})
