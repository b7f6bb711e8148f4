"""What a photo takes at the edge: as it was in the last seconds, and later as if no crowd were there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.edge.load import LoadControl
from nearsight.edge.prediction_service import answer_ms
from nearsight.edge.recent_work import PRESENT_S, RecentWork
from nearsight.edge.settings import LoadSettings

LATER_S = 2 * PRESENT_S


def work(servers: int, *photos: tuple[float, float]) -> RecentWork:
    """After photos, each from and to a second."""
    recent = RecentWork(servers)
    for begin_s, end_s in photos:
        recent.observe(end_s, (end_s - begin_s) * 1e3)
    return recent


def test_nothing_is_known_before_the_first_photo() -> None:
    assert RecentWork(1).expected_ms(0.0) is None


def test_while_a_crowd_is_there_photos_take_what_they_take() -> None:
    assert work(1, *[(0.0, 0.08)] * 4).expected_ms(1.0) == pytest.approx(80.0)


@pytest.mark.parametrize(("servers", "alone_ms"), [(1, 20.0), (2, 40.0), (8, 80.0)])
def test_a_crowd_that_is_gone_no_longer_makes_them_longer(servers: int, alone_ms: float) -> None:
    assert work(servers, *[(0.0, 0.08)] * 4).expected_ms(LATER_S) == pytest.approx(alone_ms)


def test_an_edge_that_is_slow_by_itself_stays_slow() -> None:
    one_by_one = [(0.1 * number, 0.1 * number + 0.09) for number in range(5)]
    assert work(1, *one_by_one).expected_ms(LATER_S) == pytest.approx(90.0)


def test_the_last_seconds_count_before_what_was_earlier() -> None:
    recent = work(1, *[(0.0, 0.5)] * 10, (20.0, 20.01))
    assert recent.expected_ms(20.1) == pytest.approx(10.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(1e-4, 5)), min_size=1, max_size=30), st.floats(0, 100))
def test_it_is_at_most_what_was_measured(photos: list[tuple[float, float]], later_s: float) -> None:
    ended = sorted((begin + length, begin) for begin, length in photos)
    recent = work(1, *[(begin, end) for end, begin in ended])
    expected_ms = recent.expected_ms(ended[-1][0] + later_s)
    assert expected_ms is not None
    assert 0 < expected_ms <= 1e3 * max(length for _, length in photos) + 1e-6


def test_an_edge_without_servers_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        RecentWork(0)


def test_a_report_waits_as_a_photo_would() -> None:
    load = LoadControl("none", LoadSettings(), 1, ManualClock())
    assert answer_ms(7.0, load, size=3) == 0.0, "nobody asked yet"
    load.computed(12.0)
    assert answer_ms(7.0, load, size=3) == pytest.approx(19.0)
    assert answer_ms(7.0, load, size=0) == 0.0, "nothing is looked up in an empty cache"


def test_photos_that_are_given_away_cost_nothing_here() -> None:
    clock = ManualClock()
    load = LoadControl("load-balanced", LoadSettings(share=1.0, interarrival_seed_ms=10.0), 1, clock)
    for _ in range(100):
        load.computed(40.0)
    assert load.compute_ms() == pytest.approx(10.0)
