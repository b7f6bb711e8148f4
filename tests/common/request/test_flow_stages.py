"""Stages of a request flow: who of them looks, and who learns the answer."""

from dataclasses import replace

import pytest

from nearsight.common.errors import DeadlineExceeded, InvalidArgument, NearsightError, NotFound, Unavailable
from nearsight.common.request.answer import NETWORK, OBJECT, Answer
from nearsight.common.request.effects import Ask, Extract, Finish, Look
from nearsight.common.request.forms import FEATURES
from nearsight.common.request.next_tiers import AskRules, NextTiers
from support.recognition_server import EXHIBIT
from support.requests import FOUND, RULES, PlainQuery, PlainStage, new_flow, outcome, tiers


def test_a_stage_looks_before_a_tier_is_asked_and_gets_the_features_that_it_wants() -> None:
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


def test_what_one_stage_does_not_know_the_next_one_may_and_the_first_learns_it() -> None:
    first, closed, second = PlainStage(0), PlainStage(None), PlainStage(400)
    flow = new_flow(None, first, closed, second)
    assert flow.begin(PlainQuery(), 0.0, 0.0) == Look(first)
    assert flow.looked(first, None, 0.1) == Look(second)
    finish = flow.looked(second, EXHIBIT, 0.2)
    assert isinstance(finish, Finish)
    assert finish.learners == (first, closed)


def test_where_a_network_knows_nothing_nobody_else_is_asked() -> None:
    stage = PlainStage(0)
    stage.grain = NETWORK
    flow = new_flow(tiers("edge"), stage)
    flow.begin(PlainQuery(), 0.0, 0.0)
    finish = flow.looked(stage, None, 0.1)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, flow.attempts) == (None, "device", [])


def test_where_no_tier_comes_next_the_last_stage_says_what_is_unknown() -> None:
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


def test_where_no_tier_comes_next_a_late_answer_is_no_matter_of_tiers() -> None:
    flow = new_flow(NextTiers((), AskRules(), {}, 800), PlainStage(0))
    flow.begin(PlainQuery(), 0.0, 0.0)
    error = outcome(flow.expired(5.0))
    assert isinstance(error, DeadlineExceeded)
    assert error.advice == "allow more time"


def test_all_stages_learn_what_a_tier_answers() -> None:
    stage, closed = PlainStage(), PlainStage(None)
    flow = new_flow(tiers("edge"), stage, closed)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(flow.looked(stage, None, 0.1), Ask)
    finish = flow.replied(0, FOUND, 0.2)
    assert isinstance(finish, Finish)
    assert finish.learners == (stage, closed)
    assert finish.lesson is not None
    assert finish.lesson.tier == "edge"


def test_a_look_that_ends_too_late_changes_nothing() -> None:
    stage = PlainStage()
    flow = new_flow(None, stage)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(outcome(flow.expired(5.0)), DeadlineExceeded)
    assert flow.looked(stage, EXHIBIT, 5.1) is None


class PlainStandby(PlainStage):
    """A standby that has all that the tiers have, or not."""

    def __init__(self, *, complete: bool = True, wants: int | None = 400) -> None:
        super().__init__(wants)
        self.complete = complete


def test_a_standby_looks_only_after_the_last_tier_failed() -> None:
    stage, standby = PlainStage(), PlainStandby()
    flow = new_flow(tiers("cloud"), stage, standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    step = flow.looked(stage, None, 0.1)
    assert isinstance(step, Ask)
    assert step.timeout_s == pytest.approx(0.6 * 4.9), "the standby needs the rest"
    assert flow.failed(0, Unavailable("gone"), 0.2) == Look(standby)
    finish = flow.looked(standby, EXHIBIT, 0.3)
    assert isinstance(finish, Finish)
    answer = outcome(finish)
    assert isinstance(answer, Answer)
    assert (answer.found, answer.answered_by, finish.lesson) == (EXHIBIT, "device", None)
    assert finish.learners == (stage,)


def test_a_tier_that_hangs_keeps_a_photo_for_so_long_at_most_where_a_standby_answers() -> None:
    rules = replace(RULES, max_s=2.0)
    for standby, timeout_s in ((PlainStandby(), 2.0), (None, 5.0)):
        flow = new_flow(tiers("cloud", rules=rules), standby=standby)
        step = flow.begin(PlainQuery(), 0.0, 0.0)
        assert isinstance(step, Ask)
        assert step.timeout_s == timeout_s


def test_a_tier_that_cools_down_is_not_asked_where_a_standby_answers() -> None:
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


def test_where_an_incomplete_standby_knows_nothing_the_error_stays() -> None:
    standby = PlainStandby(complete=False)
    flow = new_flow(tiers("cloud"), standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    flow.failed(0, Unavailable("gone"), 0.1)
    assert isinstance(outcome(flow.looked(standby, None, 0.2)), Unavailable)


@pytest.mark.parametrize("error", [NotFound("no such catalogue"), InvalidArgument("no image")])
def test_no_standby_answers_what_a_tier_refuses(error: NearsightError) -> None:
    flow = new_flow(tiers("cloud"), standby=PlainStandby())
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert isinstance(outcome(flow.failed(0, error, 0.1)), type(error))


def test_a_standby_looks_when_there_is_no_time_for_another_tier() -> None:
    stage, standby = PlainStage(), PlainStandby()
    flow = new_flow(tiers("cloud"), stage, standby=standby)
    flow.begin(PlainQuery(), 0.0, 0.0)
    assert flow.looked(stage, None, 4.995) == Look(standby)
