"""Regions of the map in words: a shallow decision tree over the variables, written as sentences.

The features of the tree are the logarithms of the variables; the network is represented by its upstream rate.
Two accuracies are given: for the points that the tree was grown on, and for unseen points (cross-validation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsight.experiments.studies.cachier.scale.configurations import NAMES
from nearsight.experiments.studies.cachier.scale.machines import NEXUS_7
from nearsight.experiments.studies.cachier.scale.operating_point import NETWORKS
from nearsight.experiments.studies.map.losses import METRICS, Loss, digits
from nearsight.experiments.studies.map.places import FAST_PHONE, MACHINES, SLOW_EDGE, Place

_DEPTH = 3
_LEAST_LEAF = 0.04
"""Smallest region as a share of all points, so that a few outliers form no region."""
_FOLDS = 6
_Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """One axis of the map."""

    number: Callable[[Place], float]
    """Value of the variable at a place; the tree uses its logarithm."""
    words: Callable[[_Numbers, _Numbers], str]
    """Describes the values of a region, given these and all values."""


def _counted(noun: str) -> Callable[[_Numbers, _Numbers], str]:
    def words(values: _Numbers, every: _Numbers) -> str:
        if len(values) == 1:
            return f"{values[0]:g} {noun if values[0] != 1 else noun.removesuffix('s')}"
        if values[-1] == every[-1]:
            return f"{values[0]:g} or more {noun}"
        if values[0] == every[0]:
            return f"at most {values[-1]:g} {noun}"
        return f"{values[0]:g} to {values[-1]:g} {noun}"

    return words


def _named(names: Mapping[float, str], what: str = "") -> Callable[[_Numbers, _Numbers], str]:
    return lambda values, _every: what + " or ".join(names[value] for value in values)


_PHONES = {FAST_PHONE: "fast phones", NEXUS_7: "Nexus 7"}
_EDGES = {SLOW_EDGE: "small edge", 1.0: "edge of table 6.1"}
_NETWORKS = {link.up_mbps: name for name, link in NETWORKS.items()}
VARIABLES: Mapping[str, Variable] = {
    "phones": Variable(lambda place: MACHINES[place.machines].phone_slowness, _named(_PHONES)),
    "edge": Variable(lambda place: SLOW_EDGE if MACHINES[place.machines].small_edge else 1.0, _named(_EDGES)),
    "visitors": Variable(lambda place: float(place.visitors), _counted("visitors")),
    "sections": Variable(lambda place: float(place.sections), _counted("sections")),
    "classes": Variable(lambda place: float(place.classes), _counted("classes")),
    "network": Variable(lambda place: NETWORKS[place.network].up_mbps, _named(_NETWORKS, "network ")),
}


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the map where the full system loses; ``where`` describes it in words."""

    where: str
    points: int
    losses: tuple[Loss, ...]
    """Losses at the lost points."""

    def sentence(self, metric: str) -> str:
        """Describe the region: its place, the number and size of the losses, and the best rivals."""
        unit = METRICS[metric].unit
        differences = [one.difference for one in self.losses]
        percent = [100 * (one.ratio - 1) for one in self.losses]
        rivals = Counter(NAMES[one.rival] for one in self.losses)
        whom = ", ".join(f"{name} ({count})" for name, count in rivals.most_common(2))
        middle, most = digits(float(np.median(differences))), digits(max(differences))
        return (
            f"{self.where}: {len(self.losses)} of {self.points} points, by {middle} {unit} "
            f"({np.median(percent):+.0f} %) in the median and {most} {unit} at most; best there: {whom}"
        )


@dataclass(frozen=True, slots=True)
class Regions:
    """Regions and accuracy of the tree."""

    regions: tuple[Region, ...]
    """Regions with losses, that with most losses first."""
    accuracy: float
    unseen_accuracy: float
    """Share of correctly classified points: of all points, and of unseen points in cross-validation."""
    always: float
    """Accuracy of a constant answer, the more frequent class."""


def regions_of(losses: Sequence[Loss]) -> Regions:
    """Grow the tree and describe its regions."""
    from sklearn.model_selection import KFold, cross_val_predict  # noqa: PLC0415  takes long to import
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    lost = np.array([one.lost for one in losses])
    share = float(lost.mean())
    always = max(share, 1 - share)
    if share in {0.0, 1.0}:
        everywhere = (Region("everywhere", len(losses), tuple(losses)),) if share else ()
        return Regions(everywhere, 1.0, 1.0, always)
    numbers = np.array([[one.number(loss.place) for one in VARIABLES.values()] for loss in losses])
    least = max(1, round(_LEAST_LEAF * len(losses)))
    tree = DecisionTreeClassifier(max_depth=_DEPTH, min_samples_leaf=least, random_state=0)
    logarithms = np.log2(numbers)
    folds = KFold(min(_FOLDS, len(lost)), shuffle=True, random_state=0)
    unseen = float(np.mean(cross_val_predict(tree, logarithms, lost, cv=folds) == lost))
    tree.fit(logarithms, lost)
    regions = [_region(part, numbers, losses) for part in _parts(tree.tree_, logarithms, lost)]
    said = tree.predict(logarithms)
    ordered = sorted((one for one in regions if one.losses), key=lambda one: -len(one.losses))
    return Regions(tuple(ordered), float(np.mean(said == lost)), unseen, always)


def _parts(tree: Any, numbers: Any, lost: Any) -> list[Any]:
    """Index arrays of the parts that the tree classifies as lost; siblings of the same class are merged."""

    def grow(node: int, members: Any) -> list[tuple[bool, Any]]:
        says = bool(lost[members].mean() > 0.5)
        if tree.children_left[node] < 0:
            return [(says, members)]
        left = numbers[members, tree.feature[node]] <= tree.threshold[node]
        found = grow(tree.children_left[node], members[left]) + grow(
            tree.children_right[node], members[~left]
        )
        return [(says, members)] if len({said for said, _ in found}) == 1 else found

    return [members for says, members in grow(0, np.arange(len(lost))) if says]


def _region(members: Any, numbers: Any, losses: Sequence[Loss]) -> Region:
    conditions = []
    for column, variable in enumerate(VARIABLES.values()):
        every = tuple(sorted(set(numbers[:, column].tolist())))
        values = tuple(sorted(set(numbers[members, column].tolist())))
        if values != every:
            conditions.append(variable.words(values, every))
    chosen = [losses[index] for index in members]
    where = ", ".join(conditions) or "everywhere"
    return Region(where, len(chosen), tuple(one for one in chosen if one.lost))
