"""The open-loop replay and its rows, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.experiments.rig.replay import Ledger, Outcome, replay
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.traces.plan import PlannedPhoto

PHOTO = Path("a.jpg")
CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def found(object_id: str, tier: str = "edge") -> Recognition:
    hops = (
        Hop("cloud", queue_ms=1.0, compute_ms=20.0, next_tier_ms=0.0, received_bytes=1, sent_bytes=1),
        Hop("edge", queue_ms=0.5, compute_ms=8.0, next_tier_ms=55.0, received_bytes=1, sent_bytes=1),
    )
    thing = RecognizedObject(object_id, object_id, 1, 0.9, 30, CORNERS)
    return Recognition(thing, tier, 12.0, hops=hops, sent_bytes=40_000, received_bytes=300)


class Answers:
    """A recogniser with fixed outcomes for each request; records the times of sending."""

    def __init__(self, clock: ManualClock, outcomes: list[Outcome], cost_s: float = 0.0) -> None:
        self.clock = clock
        self.outcomes = outcomes
        self.cost_s = cost_s
        self.sent_s: list[float] = []

    def recognize(
        self, image: bytes, callback: Callable[[Outcome], None], *, timeout_s: float | None = None
    ) -> None:
        self.sent_s.append(self.clock.monotonic())
        self.clock.advance(self.cost_s)
        for outcome in self.outcomes:
            callback(outcome)


def photos(*times_s: float, object_id: str = "a") -> list[PlannedPhoto]:
    return [PlannedPhoto(at_s, object_id, PHOTO) for at_s in times_s]


def run(
    plan: list[PlannedPhoto], outcomes: list[Outcome], cost_s: float = 0.0, timeout_s: float = 5.0
) -> tuple[tuple[RequestRow, ...], Answers]:
    clock = ManualClock(100.0)
    answers = Answers(clock, outcomes, cost_s)
    rows = replay(
        plan,
        {PHOTO: b"jpeg"},
        answers,
        Ledger("edge-cache", "v1"),
        timeout_s=timeout_s,
        clock=clock,
        sleep=clock.advance,
    )
    return rows, answers


def test_each_photo_is_sent_at_its_planned_time() -> None:
    rows, answers = run(photos(0.2, 1.2, 5.0), [found("a")])
    assert answers.sent_s == pytest.approx([100.2, 101.2, 105.0])
    assert [row.late_ms for row in rows] == pytest.approx([0, 0, 0], abs=1e-6)


def test_slow_answers_do_not_delay_the_rest_but_lateness_is_reported() -> None:
    rows, answers = run(photos(0.0, 1.0, 2.0), [found("a")], cost_s=1.5)
    assert answers.sent_s == pytest.approx([100.0, 101.5, 103.0])
    assert [row.late_ms for row in rows] == pytest.approx([0, 500, 1000])
    assert [row.latency_ms for row in rows] == pytest.approx([1500, 1500, 1500])


def test_a_row_has_the_answer_its_tier_and_the_times_of_the_hops() -> None:
    (row,), _ = run(photos(0.0), [found("a", tier="cloud")])
    assert (row.outcome, row.answered, row.answered_by, row.is_correct) == ("recognized", "a", "cloud", True)
    assert (row.edge_queue_ms, row.edge_compute_ms, row.edge_next_tier_ms) == (0.5, 8.0, 55.0)
    assert (row.cloud_queue_ms, row.cloud_compute_ms) == (1.0, 20.0)
    assert (row.sent_bytes, row.received_bytes) == (40_000, 300)


def test_an_unknown_photo_is_answered_and_an_error_is_no_answer() -> None:
    (unknown,), _ = run(photos(0.0, object_id=""), [Recognition(None, "cloud", 70.0)])
    assert (unknown.outcome, unknown.is_answered) == ("unknown", True)
    failure: NearsightError = DeadlineExceeded("too late")
    (failed,), _ = run(photos(0.0), [failure])
    assert (failed.outcome, failed.outcomes, failed.is_answered) == ("DeadlineExceeded", 1, False)


def test_a_second_outcome_is_counted_in_the_row() -> None:
    (row,), _ = run(photos(0.0), [found("a"), found("b")])
    assert (row.outcomes, row.answered, row.is_answered) == (2, "a", False)


def test_a_request_without_an_outcome_is_lost_after_its_deadline() -> None:
    (row,), _ = run(photos(0.0), [], timeout_s=-1.95)
    assert (row.outcome, row.outcomes) == ("lost", 0)


def test_each_completed_request_is_reported_with_its_row() -> None:
    reported: list[RequestRow] = []
    ledger = Ledger("edge-cache", "v1", reported.append)
    number = ledger.sent(photos(0.0)[0], 1.0, 0.0)
    assert not ledger.wait_closed(0)
    ledger.completed(number, found("a"), 1.25)
    assert ledger.wait_closed(0)
    assert [(row.number, row.latency_ms) for row in reported] == [(0, 250.0)]
