"""Regions of losses: a decision tree finds them, with its accuracy."""

from collections.abc import Callable

import pytest

from nearsight.experiments.studies.map.losses import losses_of
from nearsight.experiments.studies.map.places import Place
from nearsight.experiments.studies.map.regions import Regions, regions_of
from nearsight.experiments.twin.session import ADAPTIVE, BOUNDED
from support.map_rows import NEXUS, SMALL_NEXUS, every_place, map_rows


def regions(loses: Callable[[Place], bool]) -> Regions:
    """Regions of a map where the full system takes 40 instead of 10 ms at some places."""

    def latency_ms(place: Place, tiers: str, _run: int) -> float:
        if tiers == ADAPTIVE:
            return 40.0 if loses(place) else 5.0
        return 10.0 if tiers == BOUNDED else 20.0

    return regions_of(losses_of(map_rows(latency_ms, every_place()), ADAPTIVE, "p50"))


def test_a_region_is_described_in_a_sentence() -> None:
    found = regions(lambda place: place.machines in {NEXUS, SMALL_NEXUS} and place.visitors <= 10)
    (region,) = found.regions
    assert region.where == "Nexus 7, at most 10 visitors"
    assert (len(region.losses), region.points) == (32, 32)
    assert region.sentence("p50") == (
        "Nexus 7, at most 10 visitors: 32 of 32 points, by 30 ms (+300 %) in the median and 30 ms at most; "
        "best there: bounded edge (32)"
    )
    assert (found.accuracy, found.unseen_accuracy) == (1.0, 1.0)
    assert found.always == pytest.approx(1 - 32 / 96)


@pytest.mark.parametrize(
    ("loses", "where"),
    [
        (lambda place: place.network == "Slow", "network Slow"),
        (lambda place: place.visitors == 1, "1 visitor"),
        (lambda place: place.visitors > 1, "10 or more visitors"),
        (lambda place: place.sections == 3, "3 sections"),
        (lambda place: place.classes == 500, "500 classes"),
        (lambda place: place.machines == SMALL_NEXUS, "Nexus 7, small edge"),
    ],
)
def test_every_variable_is_described(loses: Callable[[Place], bool], where: str) -> None:
    (region,) = regions(loses).regions
    assert region.where == where


def test_a_map_without_losses_has_no_regions() -> None:
    assert regions(lambda _place: False).regions == ()


def test_losses_at_all_points_are_one_region() -> None:
    (region,) = regions(lambda _place: True).regions
    assert region.where == "everywhere"


def test_scattered_losses_are_not_predicted() -> None:
    scattered = {place for number, place in enumerate(every_place()) if (number * 7919) % 5 == 0}
    found = regions(lambda place: place in scattered)
    assert found.unseen_accuracy <= found.always
