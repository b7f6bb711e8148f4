"""Choice of the objects of a standby, pace of its fetches, and when its index is built."""

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


def test_popular_objects_come_first_and_others_in_the_order_of_the_catalogue() -> None:
    assert choose(ASKED, {}, 4 * 10, 10).missing == ("d", "b", "a", "c")


def test_no_more_objects_are_chosen_than_fit() -> None:
    chosen = choose(ASKED, {"d": 15}, 30, 10)
    assert (chosen.keep, chosen.missing) == ({"d"}, ("b",))


def test_without_memory_no_object_is_chosen() -> None:
    chosen = choose(ASKED, {"d": 10}, 0, 10)
    assert (chosen.keep, chosen.missing) == (frozenset(), ())


def test_a_held_object_is_replaced_only_by_one_of_twice_its_popularity() -> None:
    counts = ranking({"a": 9, "b": 12, "c": 30})
    assert choose(counts, {"a": 10}, 10, 10).missing == ("c",)
    assert choose(ranking({"a": 9, "b": 12}), {"a": 10}, 10, 10).keep == {"a"}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), min_size=1),
    st.sets(st.sampled_from("abcdefgh")),
    st.integers(0, 90),
)
def test_the_chosen_objects_stay_within_the_budget(
    counts: dict[str, int], held: set[str], budget_bytes: int
) -> None:
    sizes = dict.fromkeys(held & counts.keys(), 10)
    chosen = choose(ranking(counts), sizes, budget_bytes, 10)
    assert 10 * (len(chosen.keep) + len(chosen.missing)) <= budget_bytes
    assert not chosen.keep & set(chosen.missing)


def test_the_batch_size_follows_the_duration_of_fetches() -> None:
    pace = FetchPace()
    for _ in range(5):
        pace.fetched(0.01)
    assert pace.batch == 8
    for _ in range(5):
        pace.fetched(0.5)
    assert pace.batch == 1


def test_the_pause_is_half_of_the_duration_of_a_fetch() -> None:
    assert FetchPace().fetched(0.3) == 0.15


def test_an_index_is_built_when_the_models_are_complete_or_have_doubled() -> None:
    assert worth_building(1, 0, changed=True, more_come=True)
    assert not worth_building(11, 10, changed=True, more_come=True)
    assert worth_building(21, 10, changed=True, more_come=True)
    assert worth_building(11, 10, changed=True, more_come=False)
    assert not worth_building(10, 10, changed=False, more_come=False)
