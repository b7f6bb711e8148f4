"""The flow of one request: order of tiers, forms, timeouts; one outcome in any order of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    InvalidImage,
    NearsightError,
    NotFound,
    Overloaded,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.request.answer import NETWORK, OBJECT, Answer
from nearsight.common.request.effects import Ask, Effect, Encode, Extract, Finish
from nearsight.common.request.flow import Phase
from nearsight.common.request.forms import FEATURES, IMAGE, OffloadChoice
from nearsight.common.request.next_tiers import BreakerState, NextTiers
from nearsight.common.rpc.envelope import Hop
from support.recognition_server import EXHIBIT
from support.requests import (
    FOUND,
    RULES,
    UNKNOWN,
    Flow,
    PlainQuery,
    PlainStage,
    new_flow,
    outcome,
    tiers,
)


def asked(flow: Flow, now_s: float, query: PlainQuery | None = None) -> Effect[PlainQuery] | None:
    """Begin with a photo that can be sent at once."""
    return flow.begin(query or PlainQuery(), now_s, now_s)


def cool_down(next_tiers: NextTiers, tier: str, now_s: float = 0.0) -> None:
    choice = next_tiers.choose([tier], PlainQuery().payloads(0), now_s)
    next_tiers.failed(choice, Unauthenticated("no"), 1.0, now_s)


# Order and timeouts of tiers


def test_the_edge_is_asked_first_with_its_share_and_the_cloud_with_the_rest() -> None:
    flow = new_flow()
    assert asked(flow, 1.0) == Ask("edge", IMAGE, pytest.approx(0.6 * 4.0), 0)
    assert flow.failed(0, Unavailable("gone"), 2.0) == Ask("cloud", IMAGE, pytest.approx(3.0), 1)


def test_a_request_for_this_tier_only_asks_no_other_and_unknown_is_no_answer_to_it() -> None:
    for found in (EXHIBIT, None):
        stage = PlainStage()
        flow = new_flow(None, stage, only_here=True)
        assert asked(flow, 0.0) is not None
        ended = outcome(flow.looked(stage, found, 0.1))
        assert isinstance(ended, Answer if found else Unavailable)
        assert flow.attempts == []


def test_a_single_tier_gets_all_the_time() -> None:
    assert asked(new_flow(tiers("edge")), 0.0) == Ask("edge", IMAGE, 5.0, 0)


@pytest.mark.parametrize(
    "error", [Unavailable, DeadlineExceeded, Overloaded, InternalError, NotFound, Unauthenticated]
)
def test_after_a_failure_of_one_tier_the_next_is_asked(error: type[NearsightError]) -> None:
    flow = new_flow()
    asked(flow, 0.0)
    effect = flow.failed(0, error("no"), 0.1)
    assert isinstance(effect, Ask)
    assert effect.tier == "cloud"


def test_an_image_that_one_tier_refuses_is_not_sent_to_the_next() -> None:
    next_tiers = tiers()
    flow = new_flow(next_tiers)
    asked(flow, 0.0)
    refused = InvalidArgument("no image")
    assert outcome(flow.failed(0, refused, 0.1)) is refused
    assert next_tiers.states()["edge"] is BreakerState.CLOSED


def test_an_answer_has_the_attempts_and_the_times_of_the_own_hop() -> None:
    flow = new_flow()
    assert flow.begin(PlainQuery(unmade=[IMAGE]), 0.010, 0.010) == Encode()
    flow.made(0.015)
    flow.failed(0, Unavailable("gone"), 0.115)
    answer = outcome(flow.replied(1, FOUND, 0.215))
    assert isinstance(answer, Answer)
    assert [(a.tier, a.outcome) for a in flow.attempts] == [
        ("edge", StatusCode.UNAVAILABLE),
        ("cloud", StatusCode.OK),
    ]
    assert [a.elapsed_ms for a in flow.attempts] == pytest.approx([100, 100])
    own = flow.own_hop(answer)
    assert (own.tier, own.sent_bytes, own.received_bytes) == ("device", 10, 20)
    assert (own.queue_ms, own.compute_ms, own.next_tier_ms) == pytest.approx((10, 5, 200))


def test_a_cooling_tier_is_asked_last_and_reduces_no_timeout() -> None:
    next_tiers = tiers()
    cool_down(next_tiers, "edge")
    flow = new_flow(next_tiers)
    assert asked(flow, 0.0) == Ask("cloud", IMAGE, 5.0, 0)
    assert flow.failed(0, Overloaded("busy"), 0.5) == Ask("edge", IMAGE, 4.5, 1)


def refused_by(tier: str) -> Overloaded:
    error = Overloaded("busy")
    error.tier = tier
    return error


def test_a_tier_whose_refusal_another_tier_forwarded_is_not_asked_again() -> None:
    next_tiers = tiers()
    for _ in range(2 * RULES.breaker.failures):
        flow = new_flow(next_tiers)
        assert asked(flow, 0.0) == Ask("edge", IMAGE, 3.0, 0), "an edge that forwards a refusal is healthy"
        end = outcome(flow.failed(0, refused_by("cloud"), 0.5))
        assert isinstance(end, Overloaded)
    assert end.message == "no tier answered (edge after 0.50 s: busy)"


def test_after_an_overload_of_one_tier_the_next_is_asked() -> None:
    flow = new_flow()
    asked(flow, 0.0)
    assert flow.failed(0, refused_by("edge"), 0.5) == Ask("cloud", IMAGE, 4.5, 1)


def test_a_refusal_names_the_tier() -> None:
    flow = new_flow(tiers("cloud"))
    asked(flow, 0.0)
    flow.failed(0, Overloaded("busy"), 0.5)
    assert isinstance(flow.last_error, Overloaded)
    assert flow.last_error.tier == "cloud"


def test_when_all_tiers_cool_down_they_are_asked_in_their_order() -> None:
    next_tiers = tiers()
    for tier in next_tiers.names:
        cool_down(next_tiers, tier)
    effect = asked(new_flow(next_tiers), 0.0)
    assert isinstance(effect, Ask)
    assert effect.tier == "edge"


def test_a_probe_delays_a_request_that_another_tier_could_answer_by_one_second_at_most() -> None:
    next_tiers = tiers()
    cool_down(next_tiers, "edge")
    assert asked(new_flow(next_tiers, start_s=2.0, timeout_s=100.0), 2.0) == Ask("edge", IMAGE, 1.0, 0)


def test_while_one_request_probes_the_edge_others_go_to_the_cloud() -> None:
    next_tiers = tiers()
    cool_down(next_tiers, "edge")
    assert asked(new_flow(next_tiers, start_s=2.0), 2.0) == Ask("edge", IMAGE, 1.0, 0)
    assert asked(new_flow(next_tiers, start_s=2.0), 2.0) == Ask("cloud", IMAGE, 5.0, 0)


@pytest.mark.parametrize("unmade", [[], [IMAGE]])
def test_a_cancelled_probe_is_repeated_by_the_next_request(unmade: list[str]) -> None:
    next_tiers = tiers()
    cool_down(next_tiers, "edge")
    first = new_flow(next_tiers, start_s=2.0)
    first.begin(PlainQuery(unmade=unmade), 2.0, 2.0)
    first.end(Cancelled("enough"))
    assert asked(new_flow(next_tiers, start_s=2.1), 2.1) == Ask("edge", IMAGE, 1.0, 0)


def test_very_short_deadlines_do_not_count_as_failures_of_a_tier() -> None:
    next_tiers = tiers()
    for _ in range(10):
        flow = new_flow(next_tiers, timeout_s=0.05)
        asked(flow, 0.0)
        flow.failed(0, DeadlineExceeded("late"), 0.03)
    assert next_tiers.states()["edge"] is BreakerState.CLOSED


def test_missed_deadlines_count_as_failures_of_a_tier() -> None:
    next_tiers = tiers("edge")
    for _ in range(3):
        flow = new_flow(next_tiers)
        asked(flow, 0.0)
        assert isinstance(outcome(flow.expired(5.0)), DeadlineExceeded)
    assert next_tiers.states()["edge"] is BreakerState.COOLING


def test_a_refused_key_cools_the_tier_down_at_once() -> None:
    next_tiers = tiers()
    flow = new_flow(next_tiers)
    asked(flow, 0.0)
    flow.failed(0, Unauthenticated("wrong key"), 0.1)
    assert next_tiers.states()["edge"] is BreakerState.COOLING


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
def test_when_no_tier_answers_the_error_names_all_and_has_the_most_specific_type(
    errors: tuple[NearsightError, NearsightError], expected: type[NearsightError]
) -> None:
    flow = new_flow()
    asked(flow, 0.0)
    flow.failed(0, errors[0], 1.0)
    error = outcome(flow.failed(1, errors[1], 2.0))
    assert isinstance(error, expected)
    assert "edge after 1.00 s: a" in str(error)
    assert "cloud after 1.00 s: b" in str(error)
    assert error.advice


def test_the_deadline_ends_a_request_whose_image_is_not_ready() -> None:
    error = outcome(new_flow().expired(5.0))
    assert isinstance(error, DeadlineExceeded)
    assert "waiting for the image" in error.message


@pytest.mark.parametrize("unmade", [[], [IMAGE]])
def test_no_tier_is_asked_after_the_image_took_all_the_time(unmade: list[str]) -> None:
    flow = new_flow()
    effect = flow.begin(PlainQuery(unmade=unmade), 4.999 if not unmade else 0.0, 4.999 if not unmade else 0.0)
    assert isinstance(outcome(flow.made(4.999) if unmade else effect), DeadlineExceeded)


def test_a_late_answer_of_an_abandoned_attempt_is_ignored() -> None:
    flow = new_flow()
    asked(flow, 0.0)
    flow.failed(0, DeadlineExceeded("late"), 3.0)
    assert flow.replied(0, UNKNOWN, 3.1) is None
    assert flow.phase is Phase.ASKING


# Forms


def test_each_tier_gets_the_form_that_it_answers_sooner() -> None:
    next_tiers = tiers()
    for _ in range(50):
        next_tiers.observe("cloud", IMAGE, 1000, 500.0, (Hop("cloud", 0.0, 480.0, 0.0),))
    flow = new_flow(next_tiers)
    effect = flow.begin(PlainQuery([IMAGE, FEATURES], unmade=[FEATURES]), 0.0, 0.0)
    assert effect == Extract(800)
    assert flow.made(0.1) == Ask("edge", FEATURES, pytest.approx(0.6 * 4.9), 0)
    next_tiers = tiers()
    for _ in range(50):
        next_tiers.observe("cloud", FEATURES, 1000, 500.0, (Hop("cloud", 0.0, 480.0, 0.0),))
    flow = new_flow(next_tiers)
    flow.begin(PlainQuery([IMAGE, FEATURES]), 0.0, 0.0)
    assert flow.failed(0, Unavailable("gone"), 1.0) == Ask("cloud", IMAGE, 4.0, 1)


def features_asked(query: PlainQuery | None = None, timeout_s: float = 5.0) -> tuple[NextTiers, Flow]:
    next_tiers = tiers("edge")
    flow = new_flow(next_tiers, timeout_s=timeout_s)
    effect = flow.begin(query or PlainQuery([FEATURES]), 0.0, 0.0)
    assert effect == Ask("edge", FEATURES, timeout_s, 0)
    return next_tiers, flow


def test_recognised_features_need_no_image() -> None:
    _, flow = features_asked()
    finish = flow.replied(0, FOUND, 0.2)
    assert isinstance(finish, Finish)
    assert finish.outcome == FOUND
    assert finish.lesson is not None
    assert (finish.lesson.unknown, finish.lesson.complete) == (False, True)
    assert finish.lesson.first_ms == finish.lesson.waited_ms == pytest.approx(200)


def test_unknown_features_are_followed_by_the_image() -> None:
    _, flow = features_asked()
    assert flow.replied(0, UNKNOWN, 0.2) == Ask("edge", IMAGE, pytest.approx(4.8), 0, again=True)
    finish = flow.replied(0, FOUND, 0.5)
    assert isinstance(finish, Finish)
    assert isinstance(finish.outcome, Answer)
    assert (finish.outcome.found, finish.outcome.sent_bytes, finish.outcome.received_bytes) == (
        EXHIBIT,
        20,
        40,
    )
    lesson = finish.lesson
    assert lesson is not None
    assert (lesson.unknown, lesson.hop.next_tier_ms) == (True, 4.0)
    assert (lesson.first_ms, lesson.round_trip_ms, lesson.waited_ms) == pytest.approx((200, 300, 500))
    assert [attempt.elapsed_ms for attempt in flow.attempts] == pytest.approx([500])


def test_with_one_look_unknown_features_are_final_except_for_a_network() -> None:
    for grain, follows in ((OBJECT, False), (NETWORK, True)):
        flow = new_flow(tiers("edge"))
        asked = flow.begin(PlainQuery([FEATURES], one_look=True), 0.0, 0.0)
        assert asked == Ask("edge", FEATURES, 5.0, 0)
        effect = flow.replied(0, replace(UNKNOWN, grain=grain), 0.2)
        assert isinstance(effect, Ask if follows else Finish)


def test_an_image_that_must_be_encoded_is_encoded_only_for_the_second_trip() -> None:
    _, flow = features_asked(PlainQuery([FEATURES], unmade=[IMAGE]))
    assert flow.replied(0, UNKNOWN, 0.2) == Encode()
    assert flow.made(0.3) == Ask("edge", IMAGE, pytest.approx(4.7), 0, again=True)


def test_an_image_that_cannot_be_encoded_leaves_the_answer_unchanged() -> None:
    _, flow = features_asked(PlainQuery([FEATURES], unmade=[IMAGE]))
    assert flow.replied(0, UNKNOWN, 0.2) == Encode()
    assert outcome(flow.not_made(InvalidImage("gone"), 0.3)) == UNKNOWN
    flow = new_flow()
    assert flow.begin(PlainQuery(unmade=[IMAGE]), 0.0, 0.0) == Encode()
    assert isinstance(outcome(flow.not_made(InvalidImage("broken"), 0.1)), InvalidImage)
    assert flow.not_made(InvalidImage("again"), 0.2) is None


@pytest.mark.parametrize("query", [PlainQuery([IMAGE]), PlainQuery([FEATURES], has_image=False)])
def test_a_query_without_another_form_makes_one_trip(query: PlainQuery) -> None:
    flow = new_flow(tiers("edge"))
    flow.begin(query, 0.0, 0.0)
    assert outcome(flow.replied(0, UNKNOWN, 0.2)) == UNKNOWN


def test_with_no_time_left_there_is_no_second_trip() -> None:
    _, flow = features_asked()
    assert outcome(flow.replied(0, UNKNOWN, 4.95)) == UNKNOWN


@pytest.mark.parametrize("event", ["failed", "expired"])
def test_if_the_image_is_not_answered_the_answer_to_the_features_is_final(event: str) -> None:
    _, flow = features_asked()
    flow.replied(0, UNKNOWN, 0.2)
    end = flow.failed(0, Overloaded("busy"), 1.0) if event == "failed" else flow.expired(5.0)
    assert isinstance(end, Finish)
    assert end.outcome == UNKNOWN
    assert end.lesson is not None
    assert not end.lesson.complete


def test_each_message_is_measured_and_each_photo_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forms: list[str] = []
    unknown: list[bool] = []
    monkeypatch.setattr(NextTiers, "observe", lambda _self, _tier, form, *_: forms.append(form))
    monkeypatch.setattr(OffloadChoice, "observe_outcome", lambda *_, **seen: unknown.append(seen["unknown"]))
    _, flow = features_asked()
    flow.replied(0, UNKNOWN, 0.2)
    flow.replied(0, FOUND, 0.5)
    assert (forms, unknown) == ([FEATURES, IMAGE], [True])
    again = new_flow(tiers("edge"))
    again.begin(PlainQuery(asked_again=True), 0.0, 0.0)
    again.replied(0, UNKNOWN, 0.2)
    assert unknown == [True], "the photo was counted with its first request"


# Laws

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "begin",
                "made",
                "broken",
                "missed",
                "hit",
                "known",
                "unknown",
                "failed",
                "refused",
                "expired",
                "cancelled",
            ]
        ),
        st.integers(0, 2),
        st.floats(0, 2),
    ),
    max_size=40,
)


@given(EVENTS, st.booleans())
def test_every_order_of_events_gives_one_outcome_by_the_deadline(
    events: list[tuple[str, int, float]], features_first: bool
) -> None:
    stage = PlainStage()
    flow, now_s, finished = new_flow(None, stage), 0.0, 0
    query = PlainQuery([FEATURES] if features_first else [IMAGE], unmade=[FEATURES, IMAGE])
    for event, attempt, passed_s in events:
        now_s += passed_s
        effect = {
            "begin": lambda now_s=now_s: flow.begin(query, now_s, now_s),
            "made": lambda now_s=now_s: flow.made(now_s),
            "broken": lambda now_s=now_s: flow.not_made(InvalidImage("no"), now_s),
            "missed": lambda now_s=now_s: flow.looked(stage, None, now_s),
            "hit": lambda now_s=now_s: flow.looked(stage, EXHIBIT, now_s),
            "known": lambda now_s=now_s, n=attempt: flow.replied(n, FOUND, now_s),
            "unknown": lambda now_s=now_s, n=attempt: flow.replied(n, UNKNOWN, now_s),
            "failed": lambda now_s=now_s, n=attempt: flow.failed(n, Unavailable("gone"), now_s),
            "refused": lambda now_s=now_s, n=attempt: flow.failed(n, InvalidArgument("bad"), now_s),
            "expired": lambda now_s=now_s: flow.expired(now_s),
            "cancelled": lambda: flow.end(Cancelled("enough")),
        }[event]()
        if isinstance(effect, Ask):
            assert flow.phase is Phase.ASKING
            assert effect.timeout_s <= flow.deadline_s - now_s + 1e-9
        finished += isinstance(effect, Finish)
    finished += isinstance(flow.expired(now_s + 10), Finish)
    assert finished == 1
    assert flow.phase is Phase.DONE
