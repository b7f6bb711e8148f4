"""Models in bounded memory, and the count of unused fetches."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.prefetching.held_models import HeldModels
from support.objects import random_model

SIZE = random_model("a").size_bytes


def test_an_added_model_is_held() -> None:
    held = HeldModels(10 * SIZE)
    model = random_model("a")
    assert held.put(model, 100) == frozenset()
    assert held.get("a") is model
    assert held.get("b") is None
    assert (len(held), held.size_bytes, held.mean_bytes) == (1, SIZE, SIZE)
    assert held.versions() == {"a": 1}


def test_the_model_that_was_not_wanted_for_longest_leaves() -> None:
    held = HeldModels(2 * SIZE)
    held.put(random_model("a"), 100)
    held.put(random_model("b"), 100)
    held.get("a")
    assert held.put(random_model("c"), 100) == {"b"}
    assert set(held.versions()) == {"a", "c"}


def test_a_model_larger_than_the_memory_is_not_kept_and_evicts_nothing() -> None:
    held = HeldModels(SIZE)
    held.put(random_model("a"), 100)
    assert held.put(random_model("large", views=2), 900) == {"large"}
    assert set(held.versions()) == {"a"}


def test_only_models_without_hits_count_as_wasted() -> None:
    held = HeldModels(10 * SIZE)
    held.put(random_model("a"), 100)
    held.put(random_model("b"), 200)
    held.used("a")
    held.used("unknown")
    assert held.unused == 1
    held.remove(["a", "b", "unknown"])
    account = held.account
    assert (account.fetched_models, account.fetched_bytes) == (2, 300)
    assert (account.wasted_models, account.wasted_bytes) == (1, 200)


def test_a_new_version_of_a_used_model_was_not_in_vain() -> None:
    held = HeldModels(10 * SIZE)
    held.put(random_model("a"), 100)
    held.used("a")
    held.put(replace(random_model("a"), version=2), 100)
    held.remove(["a"])
    assert held.account.wasted_models == 0
    assert held.account.fetched_models == 2


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from(["put", "get", "remove", "used"]))))
def test_the_bytes_always_add_up_and_never_exceed_the_limit(steps: list[tuple[str, str]]) -> None:
    held = HeldModels(3 * SIZE)
    for object_id, step in steps:
        if step == "put":
            held.put(random_model(object_id), 10)
        elif step == "get":
            held.get(object_id)
        elif step == "remove":
            held.remove([object_id])
        else:
            held.used(object_id)
        assert held.size_bytes == SIZE * len(held) <= 3 * SIZE
        account = held.account
        assert account.wasted_models + len(held) <= account.fetched_models
        assert account.fetched_bytes == 10 * account.fetched_models
