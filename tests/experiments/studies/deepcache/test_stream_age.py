"""Rows of a clip: the label shown with each frame, its age, and the error of its outline."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nearsight.common.errors import Overloaded
from nearsight.common.recognition.results import Corners
from nearsight.experiments.museum.camera.handheld import Frame
from nearsight.experiments.studies.deepcache.stream_age import EVERY, ONE, OWN, STREAM, Figure
from nearsight.experiments.studies.deepcache.walking import Screen, Shown, overlap, row_of
from support.camera import frame, recognition

SQUARE: Corners = ((0, 0), (10, 0), (10, 10), (0, 10))
TRUE = np.array(SQUARE, np.float64)


def test_overlap_is_intersection_over_union() -> None:
    half: Corners = ((5, 0), (15, 0), (15, 10), (5, 10))
    crossed: Corners = ((0, 0), (10, 10), (10, 0), (0, 10))
    assert overlap(SQUARE, TRUE) == pytest.approx(1)
    assert overlap(half, TRUE) == pytest.approx(1 / 3)
    assert overlap(crossed, TRUE) == overlap(None, TRUE) == 0


def test_outlines_are_compared_for_correct_answers() -> None:
    shown = Shown(object_id="0001", outline=((3, 4), (13, 4), (13, 14), (3, 14)))
    right, wrong = (row_of(0, Frame(0.0, frame(), name, TRUE), shown) for name in ("0001", "0002"))
    assert right["off_px"] == 5
    assert (wrong["off_px"], wrong["overlap"]) == ("", "")


def test_the_answer_to_the_newest_frame_is_shown_for_any_order_of_arrival() -> None:
    waiting: list[Callable[[Any], None]] = []
    recognizer: Any = SimpleNamespace(recognize=lambda _image, callback: waiting.append(callback))
    screen = Screen(4)
    for number in range(3):
        screen.ask(number, frame(), recognizer)
    waiting[1](recognition("new"))
    waiting[0](recognition("old"))
    waiting[2](Overloaded("too many"))
    screen.ask(3, frame(), recognizer)
    assert [shown.done for shown in screen.shown] == ["edge", "edge", "Overloaded", ""]
    assert [shown.object_id for shown in screen.shown] == ["", "", "", "new"]
    assert screen.shown[2].answered_ms is None


def test_recall_counts_frames_of_exhibits_and_wrong_labels_count_over_all_frames() -> None:
    said = {"device": "d", "walk": "w", "contender": "c", "clip": "0", "cpu_ms": "2"}
    said |= dict.fromkeys(("done", "answer", "answered_ms", "age_ms", "overlap", "off_px"), "")
    rows = [
        {**said, "true": true, "shown": shown}
        for true, shown in (("a", "a"), ("a", ""), ("a", "b"), ("", "b"), ("", ""))
    ]
    found = Figure().metrics(rows)["devices"]["d"]["w"]["c"]
    assert found["recall"]["each"] == [pytest.approx(1 / 3, abs=1e-3)]
    assert found["wrong"] == pytest.approx(2 / 5)


def test_a_stream_without_answers_misses_the_targets_of_their_age() -> None:
    said = {"device": OWN, "walk": "known exhibits", "clip": "0", "cpu_ms": "2", "true": "a", "shown": ""}
    said |= dict.fromkeys(("done", "answer", "answered_ms", "age_ms", "overlap", "off_px"), "")
    figure = Figure()
    summary = figure.metrics([{**said, "contender": contender} for contender in (EVERY, ONE, STREAM)])
    known, every, *_ = figure.targets(summary)
    assert (known.reached, every.reached) == (False, False)
    assert every.note.endswith("p50 [ms]: none")
    assert {line["age p50, p95, max [ms]"] for line in figure.table(summary)} == {"none"}
