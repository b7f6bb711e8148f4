"""Latency that a hit saves: a median over answers that a cache could have given."""

from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.prefetching.profiler import TRUSTED, AvoidableLatency

QUICK, SLOW = 12.0, 200.0


def after(*answers: tuple[float, float, bool], window: int = 10) -> AvoidableLatency:
    """The estimate after answers: round trip, time of the tier, whether a hit would have saved it."""
    latency = AvoidableLatency(window=window)
    for round_trip_ms, tier_ms, avoidable in answers:
        latency.observe(round_trip_ms, tier_ms, avoidable=avoidable, reports=True)
    return latency


def told(latency: AvoidableLatency, *reports_ms: float) -> AvoidableLatency:
    for tier_ms in reports_ms:
        latency.refreshed(tier_ms)
    return latency


def test_the_prior_stands_in_until_the_first_answer() -> None:
    assert AvoidableLatency(prior_ms=80.0).median_ms == 80.0
    assert AvoidableLatency(prior_ms=80.0).why == "80.0 ms, assumed"


def test_unknown_photos_count_only_with_the_time_of_the_edge() -> None:
    latency = after(*[(SLOW, QUICK, False)] * 10)
    assert latency.median_ms == QUICK
    assert latency.why == "12.0 ms, median of 10 answers; a hit would have saved 0 of them"


def test_an_empty_edge_costs_the_full_latency_to_the_cloud() -> None:
    assert after(*[(SLOW, QUICK, True)] * TRUSTED).median_ms == SLOW


def test_one_slow_answer_at_the_start_is_not_believed() -> None:
    assert after((SLOW, QUICK, True)).median_ms == QUICK
    assert after((SLOW, QUICK, True), (QUICK, QUICK, True)).median_ms == QUICK


def test_a_minority_of_slow_answers_is_ignored() -> None:
    assert after(*[(QUICK, QUICK, True)] * 7, *[(SLOW, QUICK, True)] * 3).median_ms == QUICK


def test_only_the_last_answers_count() -> None:
    assert after(*[(SLOW, SLOW, True)] * 50, *[(QUICK, QUICK, True)] * 10).median_ms == QUICK
    assert after((SLOW, SLOW, True), (QUICK, QUICK, True), window=1).median_ms == QUICK


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4), st.booleans()), min_size=1, max_size=40))
def test_the_estimate_is_within_the_measurements(answers: list[tuple[float, float, bool]]) -> None:
    latency = after(*[(own + behind, own, avoidable) for own, behind, avoidable in answers])
    assert min(own for own, _, _ in answers) <= latency.median_ms
    assert latency.median_ms <= max(own + behind for own, behind, _ in answers)


CROWDED = 743.0


def test_reports_take_the_place_of_a_crowded_start() -> None:
    latency = told(after(*[(CROWDED, CROWDED, True)] * 2), 20.0, 20.0)
    assert latency.median_ms == 20.0
    assert latency.why == (
        "20.0 ms, median of 2 answers; a hit would have saved 2 of them; "
        "2 at the 20.0 ms that the edge takes now"
    )


def test_reports_of_a_slow_edge_raise_the_estimate() -> None:
    assert told(after(*[(QUICK, QUICK, True)] * 5), SLOW, SLOW).median_ms == SLOW


def test_one_slow_report_is_ignored() -> None:
    assert told(after((QUICK, QUICK, True)), QUICK, QUICK, CROWDED).median_ms == QUICK


def test_latency_behind_the_tier_is_kept() -> None:
    behind = SLOW - QUICK
    assert told(after(*[(SLOW, QUICK, True)] * 4), 20.0, 20.0, 20.0).median_ms == 20.0 + behind
    assert told(after(*[(SLOW, QUICK, False)] * 4), 20.0, 20.0, 20.0).median_ms == 20.0


def test_photos_after_a_report_count_with_their_measured_time() -> None:
    latency = told(after(*[(CROWDED, CROWDED, True)] * 2), 20.0, 20.0)
    for _ in range(3):
        latency.observe(SLOW, SLOW, avoidable=True, reports=True)
    assert latency.median_ms == SLOW
    latency.refreshed(20.0)
    assert latency.median_ms == SLOW, "one report against three photos"


def test_answers_of_a_tier_that_sends_no_reports_keep_their_time() -> None:
    latency = AvoidableLatency()
    latency.observe(SLOW, SLOW, avoidable=True)
    latency.observe(QUICK, QUICK, avoidable=True, reports=True)
    latency.observe(SLOW, SLOW, avoidable=True)
    assert told(latency, 1.0, 1.0).median_ms == SLOW


def test_reports_without_photos_keep_the_prior() -> None:
    assert told(AvoidableLatency(prior_ms=80.0), 5.0).median_ms == 80.0


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4), st.booleans()), min_size=1, max_size=20),
    st.floats(0, 1e4),
)
def test_reports_that_agree_are_believed(answers: list[tuple[float, float, bool]], tier_ms: float) -> None:
    latency = after(*[(own + behind, own, avoidable) for own, behind, avoidable in answers])
    told(latency, tier_ms, tier_ms, tier_ms)
    assert latency.median_ms >= tier_ms - 1e-6
    assert latency.median_ms <= tier_ms + max(behind for _, behind, _ in answers) + 1e-6
