"""Sessions of the twin at an operating point."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, Amount, OperatingPoint
from nearsight.experiments.studies.cachier.scale.sessions import play_on_twin
from nearsight.experiments.twin.cost_model import Hardware
from nearsight.experiments.twin.session import ADAPTIVE, LOAD_BALANCED, ONLY_CLOUD
from support.scale_rows import MACHINES

POINT = replace(BASELINE, visitors=2, sections=1)


def play(
    point: OperatingPoint = POINT, run: int = 1, configurations: tuple[str, ...] = (ONLY_CLOUD,)
) -> list[Row]:
    return play_on_twin(point, configurations, run, MACHINES, 1, Amount(1, 20.0))


@pytest.mark.system
def test_all_configurations_of_a_run_get_the_same_photos() -> None:
    rows = play(configurations=(ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE))
    assert [row["tiers"] for row in rows] == [ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE]
    assert len({row["requests"] for row in rows}) == 1
    assert int(rows[0]["requests"]) > 20


@pytest.mark.system
def test_rows_depend_on_the_number_of_the_run() -> None:
    assert play() == play()
    assert play(run=2) != play()


@pytest.mark.system
def test_a_slow_network_affects_only_requests_to_the_cloud() -> None:
    tiers = (ONLY_CLOUD, LOAD_BALANCED)
    fast, slow = (play(replace(POINT, network=name), configurations=tiers) for name in ("SuperFast", "Slow"))
    assert float(slow[0]["p50_ms"]) > 2 * float(fast[0]["p50_ms"])
    assert float(slow[1]["p50_ms"]) == pytest.approx(float(fast[1]["p50_ms"]), rel=0.05)


def test_recall_is_that_of_the_profiles_and_increases_with_features() -> None:
    kind = MACHINES.photos
    recalls = [recall for _, recall in kind.recall]
    assert [count for count, _ in kind.recall] == [200, 400, 600, 800]
    assert recalls == sorted(recalls)
    assert kind.second_look >= recalls[-1]


def test_an_overloaded_cloud_of_the_twin_uses_at_most_all_of_its_cores() -> None:
    machines = replace(MACHINES, hardware=Hardware(cloud=1, cloud_slowness=50.0))
    row = play_on_twin(POINT, [ONLY_CLOUD], 1, machines, 1, Amount(1, 10.0))[0]
    assert 0.8 < float(row["cloud_cpu"]) <= 1.0
