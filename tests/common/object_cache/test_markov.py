"""The Markov model: counts, predicted probabilities, decay, and limits of memory."""

import math
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.markov import MarkovChanges, MarkovModel, MarkovSettings, TransitionCount
from nearsight.common.object_cache.transitions import ObjectSlots

OBJECTS = tuple("abcdef")
WALKS = st.lists(st.lists(st.sampled_from(OBJECTS), max_size=12), max_size=6)


def learned(walks: Sequence[Sequence[str]], journal: bool = False, **settings: float) -> MarkovModel:
    model = MarkovModel(OBJECTS, MarkovSettings(**settings), journal=journal)  # type: ignore[arg-type]
    for device, walk in enumerate(walks):
        for object_id in walk:
            model.observe(f"device-{device}", object_id, 0.0)
    return model


def probabilities(model: MarkovModel, history: str | Sequence[str], now_s: float = 0.0) -> dict[str, float]:
    following = model.next_objects(history, now_s)
    return dict(zip(following.object_ids, following.probabilities.tolist(), strict=True))


def counts(model: MarkovModel, now_s: float = 0.0) -> dict[tuple[tuple[str, ...], str], float]:
    """All counts of a model with a journal that was not read before."""
    return {(row.history, row.object_id): row.count for row in model.changes(now_s).counts if row.count}


def histories(model: MarkovModel) -> list[tuple[str, ...]]:
    """Histories of all devices, the most recently active one first."""
    return model.histories(0.0, math.inf, 10_000)


def collapsed(walk: Sequence[str]) -> list[str]:
    return list(walk[:1]) + [after for before, after in pairwise(walk) if after != before]


@given(walks=WALKS, current=st.sampled_from(OBJECTS), prior=st.floats(0.01, 100))
def test_the_model_of_order_one_without_back_off_is_that_of_counts(
    walks: list[list[str]], current: str, prior: float
) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for walk in walks:
        for before, after in pairwise(collapsed(walk)):
            counts[before][after] += 1
    expected = {
        after: (count + prior / 5) / (counts[current].total() + prior)
        for after, count in counts[current].items()
    }
    found = probabilities(learned(walks, prior=prior, backoff=False), current)
    assert found == pytest.approx(expected)


@given(
    walks=WALKS,
    order=st.integers(0, 3),
    backoff=st.booleans(),
    history=st.lists(st.sampled_from([*OBJECTS, "gone"]), max_size=4),
    top=st.none() | st.integers(0, 7),
)
def test_probabilities_sum_to_one_in_descending_order(
    walks: list[list[str]], order: int, backoff: bool, history: list[str], top: int | None
) -> None:
    following = learned(walks, order=order, backoff=backoff).next_objects(history, 0.0, top)
    assert following.probabilities.sum() + following.remaining == pytest.approx(1)
    assert (np.diff(following.probabilities) <= 0).all()
    assert history[-1:] == ["gone"] or set(history[-1:]).isdisjoint(following.object_ids)
    assert len(following) <= (7 if top is None else top)


@given(walks=WALKS, history=st.lists(st.sampled_from(OBJECTS), max_size=3), top=st.integers(0, 6))
def test_the_top_predictions_are_the_first_of_all(
    walks: list[list[str]], history: list[str], top: int
) -> None:
    model = learned(walks, order=2)
    whole = model.next_objects(history, 0.0)
    assert model.next_objects(history, 0.0, top).object_ids == whole.object_ids[:top]


@given(walks=WALKS, history=st.lists(st.sampled_from(OBJECTS), min_size=1, max_size=3))
def test_each_order_adds_its_counts_to_a_prior_that_the_lower_order_predicts(
    walks: list[list[str]], history: list[str]
) -> None:
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for walk in map(collapsed, walks):
        for at, after in enumerate(walk):
            for length in range(min(3, at) + 1):
                counts[tuple(walk[at - length : at])][after] += 1
    others = [name for name in OBJECTS if name != history[-1]]
    expected = dict.fromkeys(others, 1 / len(others))
    for length in range(len(history) + 1):
        row = counts[tuple(history[len(history) - length :])]
        total = sum(row[name] for name in others)
        expected = {name: (row[name] + 5 * p) / (total + 5) for name, p in expected.items()}
    found = probabilities(learned(walks, order=3), history)
    assert found == pytest.approx({name: expected[name] for name in found})


def assert_same(one: MarkovModel, other: MarkovModel) -> None:
    for history in ((), "a", ("a", "b"), ("c", "a", "b")):
        assert probabilities(one, history) == pytest.approx(probabilities(other, history))


def test_each_device_has_its_own_history() -> None:
    model = MarkovModel(OBJECTS, MarkovSettings(backoff=False))
    for object_ids in zip("abc", "def", strict=True):
        for device, object_id in enumerate(object_ids):
            model.observe(f"device-{device}", object_id, 0.0)
    assert probabilities(model, "a").keys() == {"b"}
    assert probabilities(model, "d").keys() == {"e"}
    assert histories(model) == [("f",), ("c",)]


def test_without_transitions_popular_objects_are_predicted() -> None:
    model = learned(["abab", "cb"])
    assert model.next_objects("f", 0.0).object_ids == ("b", "a", "c")
    assert model.next_for_device("new", 0.0).object_ids == ("b", "a", "c")
    assert model.next_for_device("device-0", 0.0).object_ids[0] == "a"


def test_catalogues_of_at_most_one_object_predict_nothing() -> None:
    for objects in ((), ("only",)):
        model = MarkovModel(objects)
        model.observe("device", "only", 0.0)
        following = model.next_objects("only", 0.0)
        assert (following.object_ids, following.remaining) == ((), 1.0)


def test_an_object_outside_of_the_catalogue_is_not_counted() -> None:
    model = MarkovModel(OBJECTS)
    assert not model.observe("device", "unheard of", 0.0)
    assert model.devices == 0


def test_only_the_most_recently_active_devices_are_remembered() -> None:
    model = MarkovModel(OBJECTS, MarkovSettings(devices_max=2))
    for device in ("steady", "first", "steady", "second", "steady", "third"):
        model.observe(device, "a" if device == "steady" else "b", 0.0)
    assert model.devices == 2
    assert histories(model) == [("b",), ("a",)]


def test_the_number_of_histories_with_counts_is_limited() -> None:
    rng = np.random.default_rng(1)
    names = [str(number) for number in range(50)]
    model = MarkovModel(names, MarkovSettings(order=3, rows_max=30), journal=True)
    for number in rng.integers(50, size=2000).tolist():
        model.observe("device", names[number], 0.0)
    assert model.transitions <= 30 * 50
    assert len({history for history, _ in counts(model)} - {()}) == 30


def test_no_transition_is_counted_across_a_long_pause() -> None:
    model = MarkovModel(OBJECTS, MarkovSettings(pause_s=600, backoff=False))
    for object_id, now_s in (("a", 0.0), ("b", 500.0), ("c", 1100.0)):
        model.observe("device", object_id, now_s)
    assert probabilities(model, "a").keys() == {"b"}
    assert probabilities(model, "b") == {}


def test_a_transition_loses_half_of_its_weight_per_half_life() -> None:
    model = learned(["ab"], journal=True, half_life_s=100.0, backoff=False)
    assert counts(model, 300.0) == {((), "a"): 0.125, ((), "b"): 0.125, (("a",), "b"): 0.125}
    assert probabilities(model, "a", 300.0)["b"] == pytest.approx((0.125 + 1) / (0.125 + 5))


@pytest.mark.parametrize("step_s", [1.0, 900.0, 64_001.0])
def test_decay_does_not_depend_on_the_interval_of_updates(step_s: float) -> None:
    model = MarkovModel(OBJECTS, MarkovSettings(half_life_s=1000.0), journal=True)
    for turn in range(40):
        model.observe("device", "ab"[turn % 2], turn * step_s)
    expected = sum(math.exp2(-(39 - turn) * step_s / 1000.0) for turn in range(1, 40, 2))
    assert counts(model, 39 * step_s)[("a",), "b"] == pytest.approx(expected)


def test_transitions_that_decayed_to_zero_are_deleted() -> None:
    model = learned(["abcdef"], journal=True, half_life_s=1.0)
    model.observe("late", "a", 1000.0)
    assert model.transitions == 0
    assert counts(model, 1000.0).keys() == {((), "a")}


def test_a_removed_object_is_neither_predicted_nor_in_a_history() -> None:
    model = learned(["abcab", "cabd"], journal=True, order=2)
    model.set_objects([name for name in OBJECTS if name != "b"])
    assert "b" not in model
    for history in ("a", "c", "b", ("a", "b"), ()):
        assert "b" not in model.next_objects(history, 0.0).object_ids
    assert all("b" not in (*history, name) for history, name in counts(model))
    assert histories(model) == [("d",), ()], "the last object of the first device was b"


def test_a_new_object_does_not_inherit_the_counts_of_a_removed_one() -> None:
    model = learned(["abab"])
    model.set_objects(["a", "new"])
    assert model.next_objects("a", 0.0).object_ids == ()
    model.observe("device", "a", 0.0)
    model.observe("device", "new", 0.0)
    assert model.next_objects("a", 0.0).object_ids == ("new",)


def test_the_slots_of_removed_objects_are_reused() -> None:
    """The arrays of a model do not grow with every change of its catalogue."""
    objects = ObjectSlots()
    for names in ("abc", "def", "dab"):
        objects.remove([name for name in objects.by_id if name not in names])
        objects.add([name for name in names if name not in objects.by_id])
        assert sorted(objects.by_id) == sorted(names)
        assert sorted(objects.by_id.values()) == [0, 1, 2]
        assert objects.names(objects.by_id.values()) == tuple(objects.by_id)
    assert objects.present.tolist() == [True, True, True]


@given(walks=WALKS, order=st.integers(0, 3))
def test_a_restored_model_predicts_the_same(walks: list[list[str]], order: int) -> None:
    model = learned(walks, journal=True, order=order)
    stored = model.changes(0.0).counts
    copy = MarkovModel(OBJECTS, MarkovSettings(order=order), journal=True)
    assert copy.restore(stored, 0.0) == len(stored)
    assert not copy.changes(0.0)  # the store has these counts
    assert_same(copy, model)


def test_stored_counts_decay_by_the_downtime_of_the_edge() -> None:
    model, now = (MarkovModel(OBJECTS, MarkovSettings(half_life_s=3600.0)) for _ in range(2))
    model.restore([TransitionCount(("a",), "b", 8.0, age_s=7200.0)], 5.0)
    now.restore([TransitionCount(("a",), "b", 2.0)], 5.0)
    assert probabilities(model, "a", 5.0) == probabilities(now, "a", 5.0)


def test_stored_counts_of_other_catalogues_and_higher_orders_are_left_out() -> None:
    model = MarkovModel(OBJECTS)
    stored = [
        TransitionCount(("gone",), "b", 1.0),
        TransitionCount(("a",), "gone", 1.0),
        TransitionCount(("a", "b"), "c", 1.0),
        TransitionCount(("a",), "b", 0.0),
    ]
    assert model.restore(stored, 0.0) == 0


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_an_impossible_count_is_refused(count: float) -> None:
    with pytest.raises(InvalidArgument):
        MarkovModel(OBJECTS).restore([TransitionCount((), "a", count)], 0.0)


class Store:
    """Applies changes as a database does."""

    def __init__(self) -> None:
        self.counts: dict[tuple[tuple[str, ...], str], float] = {}

    def write(self, changes: MarkovChanges) -> None:
        gone = set(changes.removed_objects)
        self.counts = {key: count for key, count in self.counts.items() if gone.isdisjoint((*key[0], key[1]))}
        for row in changes.counts:
            self.counts[row.history, row.object_id] = row.count
        self.counts = {key: count for key, count in self.counts.items() if count}


EVENTS = st.lists(
    st.sampled_from(OBJECTS) | st.sampled_from(["write", "fail", "remove a", "remove b", "all"]), max_size=40
)


@given(events=EVENTS, order=st.integers(0, 2))
def test_the_changes_in_sequence_give_the_whole_model(events: list[str], order: int) -> None:
    model = MarkovModel(OBJECTS, MarkovSettings(order=order, rows_max=6), journal=True)
    store = Store()
    for event in [*events, "write"]:
        if event == "write":
            store.write(model.changes(0.0))
        elif event == "fail":
            model.redo(model.changes(0.0))
        elif event == "all":
            model.set_objects(OBJECTS)
        elif event.startswith("remove"):
            model.set_objects([name for name in OBJECTS if name != event[-1]])
        else:
            model.observe("device", event, 0.0)
    copy = MarkovModel([name for name in OBJECTS if name in model], MarkovSettings(order=order))
    copy.restore([TransitionCount(*key, count) for key, count in store.counts.items()], 0.0)
    assert copy.transitions == model.transitions
    assert_same(copy, model)


def test_each_change_is_returned_once() -> None:
    model = learned(["ab"], journal=True)
    assert len(model.changes(0.0).counts) == 3
    assert not model.changes(0.0)
    model.observe("device-0", "a", 0.0)
    assert {(row.history, row.object_id) for row in model.changes(0.0).counts} == {((), "a"), (("b",), "a")}


def test_without_a_journal_no_changes_are_recorded() -> None:
    model = learned(["abc"])
    assert not model.changes(0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": 4},
        {"order": -1},
        {"prior": 0.0},
        {"half_life_s": 0.0},
        {"rows_max": 0},
        {"devices_max": 0},
        {"pause_s": 0.0},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        learned([], **wrong)


@pytest.mark.system
def test_ten_thousand_objects_take_little_memory() -> None:
    """A twentieth of a million transitions, for which the limit is 200 MB.

    `nearsight bench markov` measures them all, and the time of a prediction: 80 MiB, about 1 ms.
    """
    objects, per_object = 10_000, 5
    names = [f"object-{number:05d}" for number in range(objects)]
    steps = (1, 2, 3, 50, 1000)
    transitions = (
        TransitionCount((name,), names[(number + step) % objects], 1.0)
        for number, name in enumerate(names)
        for step in steps
    )
    tracemalloc.start()
    try:
        model = MarkovModel(names, MarkovSettings(order=1))
        model.restore((TransitionCount((), name, 1.0) for name in names), 0.0)
        model.restore(transitions, 0.0)
        size_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert model.transitions == objects * per_object
    assert size_bytes < 20e6
    assert len(model.next_objects(names[0], 0.0, 50)) == 50


def test_a_repeated_prediction_includes_later_observations() -> None:
    model = MarkovModel(["a", "b", "c"])
    for device in ("one", "two"):
        model.observe(device, "a", 0.0)
        before = model.next_objects("a", 0.0)
        model.observe(device, "b", 1.0)
        after = model.next_objects("a", 1.0)
        probability = dict(zip(after.object_ids, after.probabilities, strict=True))["b"]
        assert probability > dict(zip(before.object_ids, before.probabilities, strict=True)).get("b", 0.0)
    model.set_objects(["a", "c"])
    assert "b" not in model.next_objects("a", 2.0).object_ids
    model.restore([TransitionCount(("a",), "c", 50.0)], 3.0)
    assert model.next_objects("a", 3.0).object_ids[0] == "c"
