"""Operating points, their baseline and their variables."""

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.studies.cachier.scale.operating_point import (
    BASELINE,
    CLASSES,
    NETWORK,
    NETWORKS,
    SECTIONS,
    VARIABLES,
    VISITORS,
    OperatingPoint,
)


def test_the_baseline_is_that_of_table_6_2() -> None:
    link = BASELINE.link
    assert (BASELINE.visitors, BASELINE.sections, BASELINE.classes) == (5, 3, 500)
    assert (link.rtt_ms, link.up_mbps, link.down_mbps) == (30.0, 15.0, 15.0)


def test_the_networks_are_those_of_table_6_3() -> None:
    slow, fastest = NETWORKS["Slow"], NETWORKS["SuperFast"]
    assert (slow.rtt_ms, slow.up_mbps, slow.down_mbps) == (40.0, 2.0, 10.0)
    assert (fastest.rtt_ms, fastest.up_mbps, fastest.down_mbps) == (10.0, 20.0, 40.0)


@pytest.mark.parametrize("variable", VARIABLES)
def test_one_variable_changes_at_a_time(variable: str) -> None:
    others = {VISITORS, SECTIONS, CLASSES, NETWORK} - {variable}
    points = VARIABLES[variable]
    assert BASELINE in points
    assert len({getattr(point, variable) for point in points}) == len(points)
    for name in others:
        assert {getattr(point, name) for point in points} == {getattr(BASELINE, name)}


def test_more_exhibits_than_classes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="132 objects"):
        OperatingPoint(classes=131)


def test_an_unknown_network_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument) as caught:
        OperatingPoint(network="5G")
    assert "SuperFast" in caught.value.advice
