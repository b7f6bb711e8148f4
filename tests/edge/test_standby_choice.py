"""What belongs into a standby, how fast it is fetched, and when an index of it is built."""

from hypothesis import given
from hypothesis import strategies as st

from nearsight.edge.request_distribution import Ranking, RequestDistribution
from nearsight.edge.standby.choice import FetchPace, choose, worth_building


def ranking(counts: dict[str, int]) -> Ranking:
    distribution = RequestDistribution(counts, half_life_s=float("inf"))
    for name, count in counts.items():
        for _ in range(count):
            distribution.count(name, 0.0)
    return distribution.ranking(0.0)


ASKED = ranking({"a": 0, "b": 3, "c": 0, "d": 9})


def test_what_is_asked_for_most_comes_first_and_the_rest_in_the_order_of_the_catalogue() -> None:
    assert choose(ASKED, {}, 4 * 10, 10).missing == ("d", "b", "a", "c")


def test_no_more_is_wanted_than_fits() -> None:
    chosen = choose(ASKED, {"d": 15}, 30, 10)
    assert (chosen.keep, chosen.missing) == ({"d"}, ("b",))


def test_nothing_belongs_into_a_standby_without_memory() -> None:
    chosen = choose(ASKED, {"d": 10}, 0, 10)
    assert (chosen.keep, chosen.missing) == (frozenset(), ())


def test_what_is_here_makes_room_only_for_what_is_asked_for_twice_as_often() -> None:
    counts = ranking({"a": 9, "b": 12, "c": 30})
    assert choose(counts, {"a": 10}, 10, 10).missing == ("c",)
    assert choose(ranking({"a": 9, "b": 12}), {"a": 10}, 10, 10).keep == {"a"}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), min_size=1),
    st.sets(st.sampled_from("abcdefgh")),
    st.integers(0, 90),
)
def test_what_is_chosen_never_takes_more_than_the_budget(
    counts: dict[str, int], held: set[str], budget_bytes: int
) -> None:
    sizes = dict.fromkeys(held & counts.keys(), 10)
    chosen = choose(ranking(counts), sizes, budget_bytes, 10)
    assert 10 * (len(chosen.keep) + len(chosen.missing)) <= budget_bytes
    assert not chosen.keep & set(chosen.missing)


def test_a_fast_link_gets_larger_requests_and_a_slow_one_smaller_ones() -> None:
    pace = FetchPace()
    for _ in range(5):
        pace.fetched(0.01)
    assert pace.batch == 8
    for _ in range(5):
        pace.fetched(0.5)
    assert pace.batch == 1


def test_a_third_of_the_time_nothing_is_fetched() -> None:
    assert FetchPace().fetched(0.3) == 0.15


def test_an_index_is_built_when_all_is_here_or_much_more_than_before() -> None:
    assert worth_building(1, 0, changed=True, more_come=True)
    assert not worth_building(11, 10, changed=True, more_come=True)
    assert worth_building(21, 10, changed=True, more_come=True)
    assert worth_building(11, 10, changed=True, more_come=False)
    assert not worth_building(10, 10, changed=False, more_come=False)
