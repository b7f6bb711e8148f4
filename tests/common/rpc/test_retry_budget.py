from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.rpc.pending_calls import RetryBudget


def test_a_burst_may_be_retried_then_only_a_fraction_of_calls() -> None:
    budget = RetryBudget(ratio=0.1, burst=2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(9):
        budget.on_call()
    assert not budget.take()
    budget.on_call()
    assert budget.take()


@given(st.lists(st.booleans(), max_size=300), st.floats(0.0, 1.0), st.floats(0.0, 20.0))
def test_retries_never_exceed_burst_plus_ratio_of_calls(
    calls: list[bool], ratio: float, burst: float
) -> None:
    budget = RetryBudget(ratio=ratio, burst=burst)
    made, retried = 0, 0
    for is_call in calls:
        if is_call:
            made += 1
            budget.on_call()
        else:
            retried += budget.take()
    assert retried <= burst + ratio * made + 1e-6
    assert 0.0 <= budget.tokens <= max(burst, 0.0)
