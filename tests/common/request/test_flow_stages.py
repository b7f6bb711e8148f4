"""Stages of a request flow: who of them looks, and who learns the answer."""

import pytest

from nearsight.common.errors import DeadlineExceeded
from nearsight.common.request.answer import NETWORK, Answer
from nearsight.common.request.flow import Ask, Extract, Finish, Look
from nearsight.common.request.forms import FEATURES
from support.recognition_server import EXHIBIT
from support.requests import FOUND, PlainQuery, PlainStage, new_flow, outcome, tiers


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
