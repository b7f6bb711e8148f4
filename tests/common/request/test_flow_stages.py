"""Stages of a request flow: which ones look, and which ones learn the answer."""

from dataclasses import replace

import pytest

from nearsight.common.errors import DeadlineExceeded, InvalidArgument, NearsightError, NotFound, Unavailable
from nearsight.common.request.answer import NETWORK, OBJECT, Answer
from nearsight.common.request.effects import Ask, Extract, Finish, Look
from nearsight.common.request.forms import FEATURES
from nearsight.common.request.next_tiers import AskRules, NextTiers
from support.recognition_server import EXHIBIT
from support.requests import FOUND, RULES, PlainQuery, PlainStage, new_flow, outcome, tiers


def test_a_stage_looks_before_a_tier_is_asked_with_its_number_of_features() -> None:
    stage = PlainStage(400)
    flow = new_flow(None, stage)
    assert flow.begin(PlainQuery(unmade=[FEATURES]), 0.1, 0.1) == Extract(400)
    assert flow.made(0.2) == Look(stage)
    finish = flow.looked(stage, EXHIBIT, 0.3)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, answer.grain) == (EXHIBIT, "device", "object")
    assert (finish.lesson, finish.learners, flow.attempts) == (None, (), [])
    own = flow.own_hop(answer)
    assert (own.queue_ms, own.compute_ms, own.next_tier_ms) == (pytest.approx(100), pytest.approx(200), 0)


def test_the_next_stage_looks_and_earlier_stages_learn_its_answer() -> None:
    first, closed, second = PlainStage(0), PlainStage(None), PlainStage(400)
    flow = new_flow(None, first, closed, second)
    assert flow.begin(PlainQuery(), 0.0, 0.0) == Look(first)
    assert flow.looked(first, None, 0.1) == Look(second)
    finish = flow.looked(second, EXHIBIT, 0.2)
    assert isinstance(finish, Finish)
    assert finish.learners == (first, closed)


def test_an_unknown_answer_of_a_network_is_final() -> None:
    stage = PlainStage(0)
    stage.grain = NETWORK
    flow = new_flow(tiers("edge"), stage)
    flow.begin(PlainQuery(), 0.0, 0.0)
    finish = flow.looked(stage, None, 0.1)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, flow.attempts) == (None, "device", [])


def test_without_a_next_tier_an_unknown_answer_of_the_last_stage_is_final() -> None:
    first, last = PlainStage(0), PlainStage(0)
    flow = new_flow(NextTiers((), AskRules(), {}, 800), first, last)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert flow.looked(first, None, 0.1) == Look(last)
    finish = flow.looked(last, None, 0.2)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, answer.grain) == (None, "device", OBJECT)
    assert finish.learners == (first,)


def test_without_a_next_tier_the_deadline_error_does_not_mention_tiers() -> None:
    flow = new_flow(NextTiers((), AskRules(), {}, 800), PlainStage(0))
    flow.begin(PlainQuery(), 0.0, 0.0)
    error = outcome(flow.expired(5.0))
    assert isinstance(error, DeadlineExceeded)
    assert error.advice == "allow more time"


def test_all_stages_learn_the_answer_of_a_tier() -> None:
    stage, closed = PlainStage(), PlainStage(None)
    flow = new_flow(tiers("edge"), stage, closed)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(flow.looked(stage, None, 0.1), Ask)
    finish = flow.replied(0, FOUND, 0.2)
    assert isinstance(finish, Finish)
    assert finish.learners == (stage, closed)
    assert finish.lesson is not None
    assert finish.lesson.tier == "edge"


def test_a_look_that_ends_after_the_deadline_is_ignored() -> None:
    stage = PlainStage()
    flow = new_flow(None, stage)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(outcome(flow.expired(5.0)), DeadlineExceeded)
    assert flow.looked(stage, EXHIBIT, 5.1) is None


class PlainStandby(PlainStage):
    """A standby with all objects of the tiers, or with some of them."""

    def __init__(self, *, complete: bool = True, wants: int | None = 400) -> None:
        super().__init__(wants)
        self.complete = complete


def test_a_standby_looks_only_after_the_last_tier_failed() -> None:
    stage, standby = PlainStage(), PlainStandby()
    flow = new_flow(tiers("cloud"), stage, standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    step = flow.looked(stage, None, 0.1)
    assert isinstance(step, Ask)
    assert step.timeout_s == pytest.approx(0.6 * 4.9), "the rest is left to the standby"
    assert flow.failed(0, Unavailable("gone"), 0.2) == Look(standby)
    finish = flow.looked(standby, EXHIBIT, 0.3)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, finish.lesson) == (EXHIBIT, "device", None)
    assert finish.learners == (stage,)


def test_with_a_standby_the_timeout_of_a_tier_is_limited() -> None:
    rules = replace(RULES, max_s=2.0)
    for standby, timeout_s in ((PlainStandby(), 2.0), (None, 5.0)):
        flow = new_flow(tiers("cloud", rules=rules), standby=standby)
        step = flow.begin(PlainQuery(), 0.0, 0.0)
        assert isinstance(step, Ask)
        assert step.timeout_s == timeout_s


def test_with_a_standby_a_cooling_tier_is_not_asked() -> None:
    standby, next_tiers = PlainStandby(), tiers("cloud")
    for _ in range(3):
        flow = new_flow(next_tiers, standby=standby)
        flow.begin(PlainQuery(), 0.0, 0.0)
        flow.failed(0, Unavailable("gone"), 0.0)
    flow = new_flow(next_tiers, standby=standby)
    assert flow.begin(PlainQuery(), 0.0, 0.1) == Look(standby)
    assert isinstance(outcome(flow.looked(standby, None, 0.2)), Answer), "unknown is an answer"
    next_tiers.note_alive("cloud")
    assert isinstance(new_flow(next_tiers, standby=standby).begin(PlainQuery(), 0.3, 0.3), Ask)


def test_an_unknown_answer_of_an_incomplete_standby_keeps_the_error() -> None:
    standby = PlainStandby(complete=False)
    flow = new_flow(tiers("cloud"), standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    flow.failed(0, Unavailable("gone"), 0.1)
    assert isinstance(outcome(flow.looked(standby, None, 0.2)), Unavailable)


@pytest.mark.parametrize("error", [NotFound("no such catalogue"), InvalidArgument("no image")])
def test_a_standby_does_not_look_after_a_refusal_by_a_tier(error: NearsightError) -> None:
    flow = new_flow(tiers("cloud"), standby=PlainStandby())
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(outcome(flow.failed(0, error, 0.1)), type(error))


def test_a_standby_looks_if_too_little_time_is_left_for_a_tier() -> None:
    stage, standby = PlainStage(), PlainStandby()
    flow = new_flow(tiers("cloud"), stage, standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert flow.looked(stage, None, 4.995) == Look(standby)
