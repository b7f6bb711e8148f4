"""Applications of the soak test: counts of outcomes."""

from contextlib import ExitStack, closing
from multiprocessing import Pipe
from pathlib import Path

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InternalError, Unavailable
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.recognition import Recognition
from nearsight.experiments.bench import soak_application
from nearsight.experiments.bench.soak_application import Application, RunClock, Tally


def answer(object_id: str | None) -> Recognition:
    corners = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
    found = RecognizedObject(object_id, object_id, 1, 0.9, 30, corners) if object_id else None
    return Recognition(found, "edge", 10.0)


def test_a_tally_counts_known_unknown_and_failed_outcomes_and_wrong_answers() -> None:
    tally = Tally()
    outcomes = [answer("a"), answer("b"), answer(None), Unavailable("no tier")]
    for outcome in outcomes:
        tally.end_request(tally.begin_request("a", 0.0), outcome, 1.0)
    assert dict(tally.outcomes) == {"known": 2, "unknown": 1, "UNAVAILABLE": 1}
    assert tally.wrong == ["the edge answered b for a"]
    assert (tally.asked, tally.twice, tally.late_s, tally.open) == (4, 0, [], {})


def test_an_object_for_a_photo_outside_the_catalogue_is_wrong() -> None:
    tally = Tally()
    tally.end_request(tally.begin_request(None, 0.0), answer("a"), 1.0)
    assert tally.wrong == ["the edge answered a for None"]


def test_a_tally_counts_second_missing_and_late_outcomes() -> None:
    tally = Tally()
    first, _, late = (tally.begin_request("a", 0.0) for _ in range(3))
    tally.end_request(first, answer("a"), 1.0)
    tally.end_request(first, answer("a"), 1.0)
    tally.end_request(late, answer("a"), 60.0)
    assert (tally.twice, len(tally.open), tally.late_s) == (1, 1, [55.0])


def test_time_in_which_the_process_was_stalled_does_not_count_as_late() -> None:
    clock = ManualClock()
    running, tally = RunClock(clock), Tally()
    stalled, late = (tally.begin_request("a", running.now_s()) for _ in range(2))
    clock.advance(60.0)
    tally.end_request(stalled, answer("a"), running.now_s())
    running.tick()
    assert (tally.late_s, round(running.stalled_s)) == ([], 60)
    for _ in range(200):
        clock.advance(0.05)
        running.tick()
    tally.end_request(late, answer("a"), running.now_s())
    assert tally.late_s == [pytest.approx(5.05)]


def test_the_end_of_an_application_is_an_error_of_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Pipe()
    monkeypatch.setattr(soak_application, "child", lambda *_: closing(ours))
    theirs.send(1)
    with ExitStack() as stack:
        application = Application(stack, ("edge", "cloud"), (), "seed", tmp_path / "log")
        theirs.send(Tally(asked=3))
        theirs.close()
        with pytest.raises(InternalError, match="ended with an error"):
            application.receive_results()
