"""The shell around the state machine: threads, deadlines and limits, with manual tiers."""

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from structlog.testing import capture_logs

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidImage,
    NearsightError,
    Overloaded,
    Unavailable,
)
from nearsight.common.request.answer import Answer, Attempt
from nearsight.common.request.effects import Ask
from nearsight.common.request.next_tiers import AskRules, BreakerSettings
from nearsight.device.engine import Outcome, RequestEngine
from nearsight.device.image_sources import QuerySource
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.device.tiers import Replied
from support.recognizers import Callbacks
from support.requests import PlainQuery, tiers
from support.waiting import LONG_S, wait_until

FOUND_NOTHING = Answer(None, "edge")


class ManualTier:
    """A tier whose requests stay open until a test answers them."""

    def __init__(self) -> None:
        self.questions: list[Future[Answer]] = []
        self.timeouts_s: list[float] = []
        self.refusal: NearsightError | None = None
        self.closed = False

    def ask(self, query: PlainQuery, step: Ask, trace_id: str, done: Replied) -> None:
        if self.refusal is not None:
            raise self.refusal
        question: Future[Answer] = Future()
        self.timeouts_s.append(step.timeout_s)
        self.questions.append(question)
        question.add_done_callback(lambda ended: done(ended.exception() or ended.result()))

    def question(self, index: int = 0) -> Future[Answer]:
        wait_until(lambda: len(self.questions) > index, what=f"question {index}")
        return self.questions[index]

    def close(self) -> None:
        self.closed = True


class Scene:
    """An engine with two manual tiers."""

    def __init__(self, settings: RecognizerSettings) -> None:
        self.edge, self.cloud = ManualTier(), ManualTier()
        self.outcomes = Callbacks()
        self.observed: list[tuple[Outcome, tuple[Attempt, ...]]] = []
        self.observing_fails = False
        self.held: list[weakref.ref[PlainQuery]] = []
        self.preparing = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        both = {"edge": self.edge, "cloud": self.cloud}
        rules = AskRules(settings.tier_share, settings.breaker)
        self.engine = RequestEngine(
            both, self.make, [], settings, SYSTEM_CLOCK, tiers(*both, rules=rules), [self]
        )

    def on_outcome(self, outcome: Outcome, attempts: tuple[Attempt, ...], latency_ms: float) -> None:
        assert latency_ms >= 0
        self.observed.append((outcome, attempts))
        if self.observing_fails:
            raise ZeroDivisionError("bug")

    def make(self, source: QuerySource) -> PlainQuery:
        self.preparing.set()
        self.go_on.wait(LONG_S)
        if source == b"bad":
            raise InvalidImage("bad")
        if source == b"bug":
            raise ZeroDivisionError("bug")
        query = PlainQuery()
        self.held.append(weakref.ref(query))
        return query


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(RecognizerSettings(max_pending=3))
    yield scene
    scene.go_on.set()
    scene.engine.close()


def test_an_answer_reaches_the_handle_the_receiver_and_the_observer(scene: Scene) -> None:
    handle = scene.engine.submit(b"x", scene.outcomes, LONG_S)
    assert not handle.done()
    scene.edge.question().set_result(FOUND_NOTHING)
    (outcome,) = scene.outcomes.wait()
    assert isinstance(outcome, Recognition)
    assert handle.done()
    assert handle.result(0) is outcome
    assert outcome.trace_id == handle.trace_id != ""
    wait_until(lambda: len(scene.observed) == 1)
    assert scene.engine.pending == 0


def test_a_given_trace_id_is_kept(scene: Scene) -> None:
    handle = scene.engine.submit(b"x", scene.outcomes, LONG_S, trace_id="app-1")
    scene.edge.question().set_result(FOUND_NOTHING)
    scene.outcomes.wait()
    assert (handle.trace_id, handle.result(0).trace_id) == ("app-1", "app-1")


def test_a_request_for_this_device_only_asks_no_tier_and_is_no_failure_for_the_observer(scene: Scene) -> None:
    scene.engine.submit(b"x", scene.outcomes, LONG_S, only_here=True)
    (outcome,) = scene.outcomes.wait()
    assert isinstance(outcome, Unavailable)
    assert (scene.edge.questions, scene.cloud.questions) == ([], [])
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question().set_result(FOUND_NOTHING)
    wait_until(lambda: len(scene.observed) > 0, what="the outcome of the other request")
    assert [type(one) for one, _ in scene.observed] == [Recognition]


def test_an_observer_that_raises_keeps_no_request_open(scene: Scene) -> None:
    scene.observing_fails = True
    for _ in range(2):
        scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.engine.close()
    assert [type(one) for one in scene.outcomes.wait(2)] == [Cancelled, Cancelled]
    assert len(scene.observed) == 2
    assert scene.edge.closed


def prepared_late(scene: Scene) -> bool:
    """Whether a request that ended at its deadline had been prepared."""
    scene.engine.submit(b"x", scene.outcomes, 0.5)
    assert isinstance(scene.outcomes.wait()[-1], DeadlineExceeded)
    return bool(scene.held)


@pytest.mark.parametrize("end", ["answered", "failed", "cancelled", "late"])
def test_memory_of_a_request_is_freed_when_it_ends(scene: Scene, end: str) -> None:
    """Reference counting must suffice: hundreds of photos would otherwise wait for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        if end == "late":  # on a slow machine, a request may end before it is prepared
            wait_until(lambda: prepared_late(scene), what="a query")
        else:
            handle = scene.engine.submit(b"x", scene.outcomes, LONG_S)
            scene.edge.question()
        if end == "answered":
            scene.edge.question().set_result(FOUND_NOTHING)
        elif end == "failed":
            scene.edge.question().set_exception(Unavailable("gone"))
            scene.cloud.question().set_exception(Unavailable("gone"))
        elif end == "cancelled":
            handle.cancel()
        wait_until(lambda: scene.engine.pending == 0, what="the outcome")
        scene.edge.questions.clear()
        scene.cloud.questions.clear()
        assert scene.held
        wait_until(lambda: all(query() is None for query in scene.held), what="the end of the query")
    finally:
        gc.enable()


def test_after_a_failed_tier_the_next_one_is_asked(scene: Scene) -> None:
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question().set_exception(Unavailable("gone"))
    scene.cloud.question().set_result(Answer(None, "cloud"))
    (outcome,) = scene.outcomes.wait()
    assert isinstance(outcome, Recognition)
    assert outcome.answered_by == "cloud"
    assert scene.edge.timeouts_s[0] < 0.61 * LONG_S


def test_after_a_tier_that_refuses_immediately_the_next_one_is_asked(scene: Scene) -> None:
    scene.edge.refusal = Unavailable("closed")
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.cloud.question().set_result(Answer(None, "cloud"))
    assert isinstance(scene.outcomes.wait()[0], Recognition)


@pytest.mark.parametrize(("source", "error"), [(b"bad", InvalidImage), (b"bug", InternalError)])
def test_an_image_that_cannot_be_prepared_asks_no_tier(
    scene: Scene, source: bytes, error: type[NearsightError]
) -> None:
    handle = scene.engine.submit(source, scene.outcomes, LONG_S)
    assert isinstance(scene.outcomes.wait()[0], error)
    with pytest.raises(error):
        handle.result(0)
    assert not scene.edge.questions


def test_silent_tiers_do_not_delay_a_request_beyond_its_deadline(scene: Scene) -> None:
    earlier = scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.engine.submit(b"x", scene.outcomes, 0.1)
    assert isinstance(scene.outcomes.wait()[0], DeadlineExceeded)
    assert not earlier.done()


def test_each_request_ends_at_its_own_deadline(scene: Scene) -> None:
    late = scene.engine.submit(b"x", None, LONG_S)
    for _ in range(2):
        soon = scene.engine.submit(b"x", None, 0.05)
        with pytest.raises(DeadlineExceeded):
            soon.result(LONG_S)
    assert not late.done()


def test_slow_preparation_does_not_delay_a_request_beyond_its_deadline(scene: Scene) -> None:
    scene.go_on.clear()
    scene.engine.submit(b"x", scene.outcomes, 0.05)
    assert isinstance(scene.outcomes.wait()[0], DeadlineExceeded)
    scene.go_on.set()
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question(0).set_result(FOUND_NOTHING)
    scene.outcomes.wait()
    assert len(scene.edge.questions) == 1


def test_a_deadline_in_the_past_is_an_outcome_and_no_exception(scene: Scene) -> None:
    scene.engine.submit(b"x", scene.outcomes, -1.0)
    assert isinstance(scene.outcomes.wait()[0], DeadlineExceeded)


def test_requests_over_the_limit_are_refused_until_others_end(scene: Scene) -> None:
    for _ in range(3):
        scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    assert isinstance(scene.outcomes.wait()[0], Overloaded)
    scene.edge.question(0).set_result(FOUND_NOTHING)
    scene.outcomes.wait()
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    assert scene.edge.question(3)


def test_cancel_ends_a_request_once(scene: Scene) -> None:
    handle = scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question()
    assert handle.cancel()
    assert not handle.cancel()
    assert isinstance(scene.outcomes.wait()[0], Cancelled)
    assert len(scene.outcomes.seen) == 1


def test_cancel_while_the_image_is_prepared(scene: Scene) -> None:
    scene.go_on.clear()
    handle = scene.engine.submit(b"x", scene.outcomes, LONG_S)
    assert scene.preparing.wait(LONG_S)
    assert handle.cancel()
    scene.go_on.set()
    assert isinstance(scene.outcomes.wait()[0], Cancelled)


def test_cancel_after_the_answer_is_ignored(scene: Scene) -> None:
    handle = scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question().set_result(FOUND_NOTHING)
    (outcome,) = scene.outcomes.wait()
    assert not handle.cancel()
    assert handle.result(0) is outcome


def test_close_cancels_pending_requests_and_closes_the_tiers(scene: Scene) -> None:
    for _ in range(3):
        scene.engine.submit(b"x", scene.outcomes, LONG_S)
    scene.edge.question(0)
    scene.engine.close()
    scene.engine.close()
    assert all(isinstance(outcome, Cancelled) for outcome in scene.outcomes.wait(3))
    assert scene.edge.closed
    assert scene.cloud.closed
    scene.engine.submit(b"x", scene.outcomes, LONG_S)
    assert isinstance(scene.outcomes.wait()[-1], Cancelled)


def test_requests_submitted_while_the_engine_closes_all_get_one_outcome() -> None:
    scene = Scene(RecognizerSettings(max_pending=1000))
    start = threading.Barrier(5)

    def submit_many() -> None:
        start.wait(LONG_S)
        for _ in range(100):
            scene.engine.submit(b"x", scene.outcomes, LONG_S)

    threads = [threading.Thread(target=submit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait(LONG_S)
    scene.engine.close()
    for thread in threads:
        thread.join(LONG_S)
    assert len(scene.outcomes.wait(400)) == 400
    assert scene.engine.pending == 0


def test_every_request_has_one_outcome_when_answers_cancels_and_deadlines_race() -> None:
    scene = Scene(RecognizerSettings(max_pending=1000))
    counts: dict[int, int] = {}

    def receiver(number: int) -> None:
        counts[number] = counts.get(number, 0) + 1

    with ThreadPoolExecutor(4) as pool:
        handles = [
            scene.engine.submit(b"x", lambda _, number=number: receiver(number), 0.02 + 0.001 * (number % 40))
            for number in range(300)
        ]
        answered = itertools.count()

        def answer_some() -> None:
            while (index := next(answered)) < len(scene.edge.questions):
                question = scene.edge.questions[index]
                if question.set_running_or_notify_cancel():
                    question.set_result(FOUND_NOTHING)

        jobs = [pool.submit(handle.cancel) for handle in handles[::3]]
        jobs += [pool.submit(answer_some) for _ in range(2)]
        for job in jobs:
            job.result(LONG_S)
    wait_until(lambda: len(counts) == 300, what="an outcome for each request")
    scene.engine.close()
    assert set(counts.values()) == {1}


def test_requests_of_other_threads_are_prepared_after_the_main_thread_has_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)  # as at the end of the main thread
    for number in range(2):
        scene.engine.submit(b"x", scene.outcomes, LONG_S)
        scene.edge.question(number).set_result(FOUND_NOTHING)
        assert isinstance(scene.outcomes.wait()[number], Recognition)
    assert scene.engine.pending == 0


def test_a_tier_that_begins_to_cool_down_is_logged_once_with_the_reason() -> None:
    breaker = BreakerSettings(failures=2, cooldown_s=0.01, longest_cooldown_s=0.01)
    scene = Scene(RecognizerSettings(breaker=breaker))
    scene.edge.refusal = Unavailable("nobody there")
    with capture_logs() as lines:
        for number in range(4):
            scene.engine.submit(b"x", scene.outcomes, LONG_S)
            scene.cloud.question(number).set_result(FOUND_NOTHING)
            scene.outcomes.wait()
    scene.engine.close()
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["tier"], line["reason"]) for line in warnings] == [("edge", "nobody there")]
