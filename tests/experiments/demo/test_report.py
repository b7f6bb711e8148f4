"""The demo's summary, table, targets and checks."""

import json
from dataclasses import replace

import pytest

from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.experiments.demo.report import (
    ConfigurationResult,
    check_answers,
    describe_answers,
    describe_link,
    describe_target,
    summary,
    table,
    targets,
    warnings,
)
from nearsight.experiments.demo.scenario import ALONE, EDGE_CACHE, FULL, QUICK, Scenario
from nearsight.experiments.rig.rows import RequestRow

ROW = RequestRow("only-cloud", "v1", 0, 0.0, 0.1, "a", "a", "recognized", 1, "cloud", 100.0)
CALIBRATION = {
    "rtt_ms": 30.01,
    "rtt_error_ms": 0.01,
    "up_mbps": 15.0,
    "down_mbps": 15.0,
    "up_error_percent": 0.1,
    "down_error_percent": -0.1,
}


def result(name: str, latency_ms: float, **changes: object) -> ConfigurationResult:
    row = replace(ROW, configuration=name, latency_ms=latency_ms, **changes)  # type: ignore[arg-type]
    return ConfigurationResult(
        name,
        tuple(replace(row, number=number) for number in range(4)),
        {"to-cloud": {"up": 4_000_000, "down": 20_000}},
        {"cloud": 2.0},
        {"calibration": CALIBRATION},
        timeout_s=FULL.timeout_s,
    )


def both(edge_ms: float) -> list[ConfigurationResult]:
    return [result("only-cloud", 100.0), result("edge-cache", edge_ms, answered_by="edge")]


def test_the_summary_has_the_metrics_of_each_configuration() -> None:
    content = json.loads(json.dumps(summary(FULL, both(30.0), {"cores": 2}, {"all": 1.0})))
    cloud = content["configurations"]["only-cloud"]
    assert (cloud["requests"], cloud["answered"], cloud["recall"], cloud["precision"]) == (4, 4, 1.0, 1.0)
    assert cloud["latency_ms"] == {"p50": 100.0, "p95": 100.0, "p99": 100.0}
    assert content["configurations"]["edge-cache"]["answered_by"] == {"edge": 4}
    assert cloud["bytes"]["to-cloud"]["up"] == 4_000_000
    assert cloud["cpu_s"] == {"cloud": 2.0}
    assert content["seed"] == FULL.seed
    assert cloud["link"]["calibration"]["rtt_error_ms"] == 0.01


@pytest.mark.parametrize(("edge_ms", "reached"), [(49.0, True), (51.0, False)])
def test_the_edge_cache_must_halve_the_median(edge_ms: float, reached: bool) -> None:
    found = targets(FULL, both(edge_ms))
    assert found[0].reached is reached
    assert describe_target(found[0]).startswith("reached" if reached else "MISSED")


@pytest.mark.parametrize("small", [QUICK, replace(FULL, objects=200), replace(FULL, seconds=10.0)])
def test_targets_of_a_small_demo_are_not_judged(small: Scenario) -> None:
    found = targets(small, both(99.0))
    assert {target.reached for target in found} == {None}
    assert all(describe_target(target).startswith("not judged") for target in found)


def test_low_recall_and_precision_miss_their_targets() -> None:
    results = [result("only-cloud", 100.0, answered="b")]
    assert [(target.value, target.reached) for target in targets(FULL, results)] == [
        (0.0, False),
        (0.0, False),
    ]


def test_the_table_has_a_column_per_configuration_and_a_dash_for_missing_values() -> None:
    columns, rows = table(both(30.0))
    assert columns == ["", "only-cloud", "edge-cache"]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["latency p50 [ms]"] == ["100.0", "30.0"]
    assert cells["answered by edge"] == ["-", "4 (100 %)"]
    assert cells["to-cloud link ↑ / ↓ [MB]"] == ["4.00 / 0.02", "4.00 / 0.02"]


def test_a_latency_that_failed_requests_determine_is_a_lower_bound() -> None:
    one = result("only-cloud", 100.0)
    failed = replace(one.rows[0], outcome="Overloaded", answered="", answered_by="", latency_ms=2.0)
    cells = {row[0]: row[1] for row in table([replace(one, rows=(*one.rows, failed))])[1]}
    assert (cells["latency p50 [ms]"], cells["latency p95 [ms]"]) == ("100.0", "≥ 5000.0")


def test_the_table_counts_answers_of_the_result_cache_and_wrong_answers() -> None:
    edge = result("edge-cache", 10.0, answered_by="edge")
    kept = replace(edge, rows=(*edge.rows[1:], replace(edge.rows[0], grain="result", answered="another")))
    cells = {row[0]: row[1:] for row in table([edge, kept])[1]}
    assert cells["by the result cache"] == ["-", "1 (25 %)"]
    assert cells["wrong answers"] == ["0", "1"]
    assert "by the result cache" not in {row[0] for row in table([edge])[1]}


def test_the_compared_edge_runs_last() -> None:
    assert FULL.configurations == ("only-cloud", "edge-cache")
    compared = replace(FULL, compared=("result_cache.enabled=true",))
    assert compared.configurations == ("only-cloud", "edge-cache", "edge-cache-compared")


def test_failed_requests_are_an_error_with_their_number_by_kind() -> None:
    check_answers(both(1.0))
    with pytest.raises(Unavailable, match="no answer to 4 of 4 requests: 4 Overloaded"):
        check_answers([result("only-cloud", 1.0, outcome="Overloaded")])


def test_late_photos_are_a_warning() -> None:
    assert warnings(both(1.0)) == []
    (warning,) = warnings([result("only-cloud", 1.0, late_ms=80.0)])
    assert "80 ms late" in warning
    assert summary(FULL, [result("only-cloud", 1.0, late_ms=80.0)], {}, {})["warnings"] == [warning]


def test_a_link_with_another_shape_than_requested_is_a_warning() -> None:
    off = replace(result("only-cloud", 1.0), link={"calibration": {**CALIBRATION, "within_target": False}})
    assert "more than 3 %" in warnings([off])[0]


def test_the_measured_error_of_the_link_is_described() -> None:
    assert "30.01 ms RTT (error +0.01 ms)" in describe_link(result("only-cloud", 1.0))
    assert "not calibrated" in describe_link(replace(result("only-cloud", 1.0), link={}))


def test_the_full_scenario_is_the_dissertations_baseline() -> None:
    assert (FULL.visitors, FULL.sections, FULL.objects) == (5, 3, 500)
    assert (FULL.link.rtt_ms, FULL.link.up_mbps, FULL.on_show) == (30.0, 15.0, 132)
    assert QUICK.seconds < FULL.seconds


def test_more_exhibits_on_show_than_objects_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="--objects 132"):
        Scenario(objects=100)


def test_the_target_without_the_cloud_is_the_kept_recall_and_errors_are_allowed() -> None:
    before = tuple(replace(ROW, configuration=EDGE_CACHE, number=number) for number in range(10))
    failed = replace(ROW, configuration=ALONE, answered="", outcome="Unavailable", answered_by="")
    after = (*(replace(ROW, configuration=ALONE, number=number) for number in range(9)), failed)
    results = [
        ConfigurationResult(EDGE_CACHE, before, {}, {}, {}, FULL.timeout_s),
        ConfigurationResult(ALONE, after, {}, {}, {}, FULL.timeout_s),
    ]
    check_answers(results)
    assert "20 requests got exactly one outcome; 1 were errors" in describe_answers(results)
    assert describe_answers(results[:1]) == "Every one of 10 requests got exactly one answer."
    found = {target.name: target for target in targets(FULL, results)}
    assert (found["recall kept without the cloud"].value, found["recall kept without the cloud"].reached) == (
        0.9,
        True,
    )
    assert "recall of without-cloud" not in found
    columns, rows = table(results)
    assert columns == ["", EDGE_CACHE, ALONE]
    assert ["requests / answered", "10 / 10", "10 / 9"] in rows
