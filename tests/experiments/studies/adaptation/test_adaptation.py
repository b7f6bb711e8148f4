"""Adaptation: metrics and targets computed from rows, and a smoke run."""

import json

import pytest

from nearsight.experiments.framework.experiment import Results, StoredRow
from nearsight.experiments.studies.adaptation.adaptation import Figure
from nearsight.experiments.studies.adaptation.measuring import BOTH, FORGED, OWN, SHARED, TRUSTED, VOUCHED


def row(way: str, right: int, noise_answered: int = 0, *, part: int = 0, light: str = "dusk") -> StoredRow:
    return {
        "light": light,
        "features": "800",
        "objects": "120",
        "part": str(part),
        "held": "40",
        "way": way,
        "views": "3",
        "relevant": "100",
        "right": str(right),
        "confused": "0",
        "noise": "200",
        "noise_answered": str(noise_answered),
        "lookup_ms": "4.5",
    }


def rows(gain: int, wrong: int, forged_wrong: int = 0) -> list[StoredRow]:
    ways = [row(VOUCHED, 80), row(VOUCHED, 90, part=1)]
    for way in (OWN, SHARED, BOTH):
        ways += [row(way, 80 + gain, wrong), row(way, 90 + gain, part=1)]
    day = [row(way, 95, light="daylight") for way in (VOUCHED, OWN, SHARED, BOTH, TRUSTED)]
    return [*ways, *day, row(FORGED, 95, forged_wrong, light="daylight")]


def test_metrics_are_summed_and_averaged_over_the_parts_of_the_museum() -> None:
    found = Figure().metrics(rows(gain=5, wrong=1))["conditions"]["dusk"]
    assert (found[VOUCHED]["right"], found[VOUCHED]["relevant"]) == (170, 200)
    assert found[VOUCHED]["recall"]["mean"] == pytest.approx(0.85)
    assert found[OWN]["recall"]["mean"] == pytest.approx(0.9)
    assert found[OWN]["precision"]["min"] == pytest.approx(85 / 86)
    assert found[OWN]["noise_answered"] == 1


def reached(gain: int, wrong: int, forged_wrong: int = 0) -> list[bool]:
    figure = Figure()
    return [one.reached for one in figure.targets(figure.metrics(rows(gain, wrong, forged_wrong)))]


def test_the_targets_are_a_higher_recall_and_no_lower_precision() -> None:
    assert reached(gain=5, wrong=0) == [True] * 7
    assert reached(gain=0, wrong=0) == [False, True] * 3 + [True]
    assert reached(gain=5, wrong=1) == [True, False] * 3 + [True]


def test_one_wrong_answer_by_forged_views_misses_the_target() -> None:
    assert not reached(gain=5, wrong=0, forged_wrong=1)[-1]


def test_the_axis_of_precision_includes_the_smallest_value() -> None:
    figure, made = Figure(), rows(gain=5, wrong=0)
    trusted = next(one for one in made if one["way"] == TRUSTED)
    trusted["noise_answered"] = "95"
    precision = figure.draw(Results(made, figure.metrics(made))).axes[1]
    assert precision.get_ylim()[0] < 0.5


@pytest.mark.system
def test_adaptation_keeps_the_answers_of_verified_models_and_forged_views_have_no_effect(smoke_runs) -> None:
    summary = json.loads((smoke_runs.folder("adaptation") / "summary.json").read_text())
    found = summary["metrics"]["conditions"]
    assert set(found) == {"daylight", "evening"}
    for ways in found.values():
        for way in (OWN, SHARED, BOTH):
            assert ways[way]["right"] >= ways[VOUCHED]["right"]
            assert ways[way]["views"] > 0
    forged, vouched = found["daylight"][FORGED], found["daylight"][VOUCHED]
    assert forged["noise_answered"] == vouched["noise_answered"]
