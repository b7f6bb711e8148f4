"""Invariants after any order of requests, loads, executions, pins and changes of the budget."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.model_cache.model_cache import Load, ModelCache, Reason, Refuse, Run, Wait
from nearsight.common.model_cache.policy import ModelCosts, Victim
from nearsight.common.model_cache.registry import make_policy

MODELS = "abcdef"
COSTS = {model: ModelCosts(20 + 15 * place, 100.0 * (place % 3 + 1)) for place, model in enumerate(MODELS)}
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["request", "request", "request", "finish", "fail", "grow", "end", "pin", "resize"]),
        st.sampled_from(MODELS),
        st.integers(0, 250),
    ),
    max_size=40,
)


class Caller:
    """Follows the decisions of the cache, and keeps its own accounts."""

    def __init__(self, policy: str) -> None:
        self.cache = ModelCache(150, make_policy(policy))
        self.loaded: dict[str, int] = {}
        self.loading: dict[str, int] = {}
        self.executing: Counter[str] = Counter()
        self.pinned: set[str] = set()
        self.budget = 150

    def unload(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            assert victim.model not in self.pinned
            assert not self.executing[victim.model]
            del self.loaded[victim.model]

    def play(self, event: str, model: str, number: int, now_s: float) -> None:
        if event == "request":
            self.request(model, now_s)
        elif event in {"finish", "grow"} and model in self.loading:
            size = self.loading.pop(model) + (number // 10 if event == "grow" else 0)
            self.loaded[model] = size
            self.unload(self.cache.loaded(model, now_s, ModelCosts(size, 100.0)))
        elif event == "fail" and model in self.loading:
            del self.loading[model]
            self.cache.failed(model)
        elif event == "end" and self.executing[model]:
            self.executing[model] -= 1
            self.unload(self.cache.ended(model, now_s))
        elif event == "pin":
            self.pinned.add(model)
            self.cache.pinned.add(model)
        elif event == "resize":
            self.budget = number
            self.unload(self.cache.resize(number, now_s))

    def request(self, model: str, now_s: float) -> None:
        decision = self.cache.request(model, COSTS[model], now_s)
        if isinstance(decision, Run):
            assert model in self.loaded
            self.executing[model] += 1
            self.cache.began(model)
        elif isinstance(decision, Wait):
            assert model in self.loading
        elif isinstance(decision, Load):
            self.unload(decision.evict)
            self.loading[model] = COSTS[model].size_bytes
            assert self.taken <= self.budget
        else:
            assert isinstance(decision, Refuse)
            if decision.reason is Reason.LOADING:
                assert self.loading
                return
            movable = sum(size for one, size in self.loaded.items() if not self.held(one))
            assert self.taken - movable + COSTS[model].size_bytes > self.budget

    def held(self, model: str) -> bool:
        return model in self.pinned or self.executing[model] > 0

    @property
    def taken(self) -> int:
        return sum(self.loaded.values()) + sum(self.loading.values())


@pytest.mark.parametrize("policy", ["lru", "forecast"])
@given(events=EVENTS)
@settings(max_examples=30)
def test_the_accounting_is_correct_and_no_model_in_use_is_evicted(
    policy: str, events: list[tuple[str, str, int]]
) -> None:
    caller = Caller(policy)
    for now_s, (event, model, number) in enumerate(events):
        caller.play(event, model, number, float(now_s))
        cache = caller.cache
        assert {*cache.resident} == {*caller.loaded}
        assert cache.free_bytes == caller.budget - caller.taken
        if cache.free_bytes < 0 and event == "resize":
            assert all(caller.held(one) for one in caller.loaded)
