"""The state machine of one request: who is asked, for how long, and that there is one outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NearsightError,
    NotFound,
    Overloaded,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.client import Hop
from nearsight.device.circuit_breaker import BreakerState, CircuitBreaker
from nearsight.device.recognition import Recognition, TierAnswer
from nearsight.device.recognizer_settings import BreakerSettings, RecognizerSettings
from nearsight.device.request_flow import Ask, Finish, Phase, RequestFlow

SETTINGS = RecognizerSettings(tier_share=0.6, breaker=BreakerSettings(failures=3, probe_timeout_s=1.0))
ANSWER = TierAnswer(None, "edge", (Hop("edge", 1.0, 2.0, 0.0, 10, 20),), sent_bytes=10, received_bytes=20)


def two_tiers() -> dict[str, CircuitBreaker]:
    return {name: CircuitBreaker(SETTINGS.breaker) for name in ("edge", "cloud")}


def new_flow(
    breakers: dict[str, CircuitBreaker] | None = None, *, start_s: float = 0.0, timeout_s: float = 5.0
) -> RequestFlow:
    return RequestFlow(
        breakers or two_tiers(), SETTINGS, started_at_s=start_s, deadline_s=start_s + timeout_s, trace_id="t"
    )


def cool_down(breaker: CircuitBreaker, now_s: float = 0.0) -> None:
    breaker.failed(breaker.acquire(now_s), now_s, at_once=True)


def outcome(step: Ask | Finish | None) -> Recognition | NearsightError:
    assert isinstance(step, Finish)
    return step.outcome


def test_the_edge_is_asked_first_with_its_share_and_the_cloud_with_the_rest() -> None:
    flow = new_flow()
    assert flow.prepared(1.0) == Ask("edge", pytest.approx(0.6 * 4.0), 0)
    assert flow.failed(0, Unavailable("gone"), 2.0) == Ask("cloud", pytest.approx(3.0), 1)


def test_a_single_tier_gets_all_the_time() -> None:
    flow = new_flow({"edge": CircuitBreaker(SETTINGS.breaker)})
    assert flow.prepared(0.0) == Ask("edge", 5.0, 0)


@pytest.mark.parametrize(
    "error", [Unavailable, DeadlineExceeded, Overloaded, InternalError, NotFound, Unauthenticated]
)
def test_failures_that_another_tier_may_not_share_fall_through(error: type[NearsightError]) -> None:
    flow = new_flow()
    flow.prepared(0.0)
    step = flow.failed(0, error("no"), 0.1)
    assert isinstance(step, Ask)
    assert step.tier == "cloud"


def test_an_image_that_one_tier_refuses_is_not_put_to_the_next() -> None:
    breakers = two_tiers()
    flow = new_flow(breakers)
    flow.prepared(0.0)
    refused = InvalidArgument("no image")
    assert outcome(flow.failed(0, refused, 0.1)) is refused
    assert breakers["edge"].state is BreakerState.CLOSED


def test_an_answer_says_where_the_time_went() -> None:
    flow = new_flow()
    flow.preparing(0.010)
    flow.prepared(0.015)
    flow.failed(0, Unavailable("gone"), 0.115)
    recognition = outcome(flow.answered(1, ANSWER, 0.215))
    assert isinstance(recognition, Recognition)
    assert recognition.latency_ms == pytest.approx(215)
    assert [(a.tier, a.outcome) for a in recognition.attempts] == [
        ("edge", StatusCode.UNAVAILABLE),
        ("cloud", StatusCode.OK),
    ]
    assert [a.elapsed_ms for a in recognition.attempts] == pytest.approx([100, 100])
    own = recognition.hops[-1]
    assert (own.tier, own.sent_bytes, own.received_bytes) == ("device", 10, 20)
    assert (own.queue_ms, own.compute_ms, own.next_tier_ms) == pytest.approx((10, 5, 200))
    assert own.queue_ms + own.compute_ms + own.next_tier_ms == pytest.approx(recognition.latency_ms)


def test_a_tier_that_cools_down_is_asked_last_and_leaves_all_the_time_to_the_healthy_one() -> None:
    breakers = two_tiers()
    cool_down(breakers["edge"])
    flow = new_flow(breakers)
    assert flow.prepared(0.0) == Ask("cloud", 5.0, 0)
    step = flow.failed(0, Overloaded("busy"), 0.5)
    assert step == Ask("edge", 4.5, 1)


def test_when_all_tiers_cool_down_they_are_asked_in_their_order() -> None:
    breakers = two_tiers()
    for breaker in breakers.values():
        cool_down(breaker)
    step = new_flow(breakers).prepared(0.0)
    assert isinstance(step, Ask)
    assert step.tier == "edge"


def test_a_probe_delays_a_request_that_another_tier_could_answer_by_one_second_at_most() -> None:
    breakers = two_tiers()
    cool_down(breakers["edge"])
    flow = new_flow(breakers, start_s=2.0, timeout_s=100.0)
    assert flow.prepared(2.0) == Ask("edge", 1.0, 0)


def test_while_one_request_probes_the_edge_others_go_to_the_cloud() -> None:
    breakers = two_tiers()
    cool_down(breakers["edge"])
    assert new_flow(breakers, start_s=2.0).prepared(2.0) == Ask("edge", 1.0, 0)
    assert new_flow(breakers, start_s=2.0).prepared(2.0) == Ask("cloud", 5.0, 0)


def test_a_cancelled_probe_is_repeated_by_the_next_request() -> None:
    breakers = two_tiers()
    cool_down(breakers["edge"])
    first = new_flow(breakers, start_s=2.0)
    first.prepared(2.0)
    first.end(Cancelled("enough"))
    assert new_flow(breakers, start_s=2.1).prepared(2.1) == Ask("edge", 1.0, 0)


def test_a_tier_is_not_blamed_for_a_deadline_that_nobody_could_meet() -> None:
    breakers = two_tiers()
    for _ in range(10):
        flow = new_flow(breakers, timeout_s=0.05)
        flow.prepared(0.0)
        flow.failed(0, DeadlineExceeded("late"), 0.03)
    assert breakers["edge"].state is BreakerState.CLOSED


def test_a_tier_that_lets_deadlines_pass_is_blamed() -> None:
    breakers = {"edge": CircuitBreaker(SETTINGS.breaker)}
    for _ in range(3):
        flow = new_flow(breakers)
        flow.prepared(0.0)
        assert isinstance(outcome(flow.expired(5.0)), DeadlineExceeded)
    assert breakers["edge"].state is BreakerState.COOLING


def test_a_refused_key_cools_the_tier_down_at_once() -> None:
    breakers = two_tiers()
    flow = new_flow(breakers)
    flow.prepared(0.0)
    flow.failed(0, Unauthenticated("wrong key"), 0.1)
    assert breakers["edge"].state is BreakerState.COOLING


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((Unavailable("a"), Unavailable("b")), Unavailable),
        ((Overloaded("a"), Overloaded("b")), Overloaded),
        ((Overloaded("a"), Unavailable("b")), Unavailable),
        ((Unauthenticated("a", advice="make keys"), Unavailable("b")), Unauthenticated),
        ((Unavailable("a"), NotFound("b", advice="ingest it")), NotFound),
    ],
)
def test_when_no_tier_answers_the_error_names_all_and_is_of_the_most_telling_kind(
    errors: tuple[NearsightError, NearsightError], expected: type[NearsightError]
) -> None:
    flow = new_flow()
    flow.prepared(0.0)
    flow.failed(0, errors[0], 1.0)
    error = outcome(flow.failed(1, errors[1], 2.0))
    assert type(error) is expected
    assert "edge after 1.00 s: a" in str(error)
    assert "cloud after 1.00 s: b" in str(error)
    assert error.advice


def test_the_deadline_ends_a_request_whose_image_is_not_ready() -> None:
    error = outcome(new_flow().expired(5.0))
    assert isinstance(error, DeadlineExceeded)
    assert "waiting for the image" in error.message


def test_no_tier_is_asked_when_the_image_took_all_the_time() -> None:
    assert isinstance(outcome(new_flow().prepared(4.999)), DeadlineExceeded)


def test_an_answer_of_a_tier_that_was_given_up_changes_nothing() -> None:
    flow = new_flow()
    flow.prepared(0.0)
    flow.failed(0, DeadlineExceeded("late"), 3.0)
    assert flow.answered(0, ANSWER, 3.1) is None
    assert flow.phase is Phase.ASKING


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["prepared", "answered", "failed", "refused", "expired", "cancelled"]),
        st.integers(0, 2),
        st.floats(0, 3),
    ),
    max_size=30,
)


@given(EVENTS)
def test_every_order_of_events_gives_at_most_one_outcome_and_the_deadline_forces_it(
    events: list[tuple[str, int, float]],
) -> None:
    flow, now_s, finished = new_flow(), 0.0, 0
    for event, attempt, passed_s in events:
        now_s += passed_s
        step = {
            "prepared": lambda now_s=now_s: flow.prepared(now_s),
            "answered": lambda now_s=now_s, n=attempt: flow.answered(n, ANSWER, now_s),
            "failed": lambda now_s=now_s, n=attempt: flow.failed(n, Unavailable("gone"), now_s),
            "refused": lambda now_s=now_s, n=attempt: flow.failed(n, InvalidArgument("bad"), now_s),
            "expired": lambda now_s=now_s: flow.expired(now_s),
            "cancelled": lambda: flow.end(Cancelled("enough")),
        }[event]()
        if isinstance(step, Ask):
            assert flow.phase is Phase.ASKING
            assert 0 < step.timeout_s <= flow.deadline_s - now_s + 1e-9
        finished += isinstance(step, Finish)
    finished += isinstance(flow.expired(now_s + 10), Finish)
    assert finished == 1
    assert flow.phase is Phase.DONE


def test_what_the_device_recognises_itself_asks_nobody() -> None:
    flow = new_flow()
    flow.preparing(0.1)
    recognition = outcome(flow.recognized_here(TierAnswer(None, "device"), 0.3))
    assert isinstance(recognition, Recognition)
    assert (recognition.answered_by, recognition.attempts) == ("device", ())
    (own,) = recognition.hops
    assert (own.queue_ms, own.compute_ms, own.next_tier_ms) == (pytest.approx(100), pytest.approx(200), 0)


def test_a_lookup_on_the_device_that_ends_too_late_changes_nothing() -> None:
    flow = new_flow()
    assert isinstance(outcome(flow.expired(5.0)), DeadlineExceeded)
    assert flow.recognized_here(TierAnswer(None, "device"), 5.1) is None
