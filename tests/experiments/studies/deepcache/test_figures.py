"""Metrics of DeepCache's studies."""

import numpy as np
import pytest

from nearsight.experiments.studies.deepcache import accuracy_figure, depth_figure, time_figure
from nearsight.experiments.studies.deepcache.ways import (
    BUDGETED,
    DEEPCACHE,
    DEEPMON,
    DEFAULT,
    EXACT,
    FIXED,
    GATE,
    OURS,
    OURS_LAST,
    PLAIN,
    WINDOW,
)


def time_rows(clip: str, changed: int, ours_ms: float) -> list[dict[str, str]]:
    frame_ms = {PLAIN: 10.0, GATE: 8.0, DEEPMON: 9.0, DEEPCACHE: 7.0}
    frame_ms |= {FIXED: ours_ms + 1, EXACT: ours_ms + 0.5, OURS: ours_ms, BUDGETED: 6.0, WINDOW: 6.5}
    return [
        {
            **{"network": "AlexNet", "clip": clip, "way": way, "frames": "40", "changed": str(changed)},
            **{"frame_ms": str(ms), "changed_ms": str(ms + 1), "p95_ms": "12"},
        }
        for way, ms in frame_ms.items()
    ]


def test_saved_time_is_computed_for_all_and_changed_frames_and_relative_to_the_gate() -> None:
    found = time_figure.Figure().metrics([*time_rows("moving", 30, 6.0), *time_rows("still", 2, 2.0)])
    ours = found["pairs"]["AlexNet"]["moving"][OURS]
    assert ours["all"] == pytest.approx(40)
    assert ours["changed"] == pytest.approx(100 * (1 - 7 / 11), abs=0.01)
    assert ours["gate"] == pytest.approx(25)
    assert found["pairs"]["AlexNet"]["moving"][BUDGETED]["p95"] == 120
    assert found["means"][OURS]["all"] == pytest.approx(60)
    assert found["means"][OURS]["changed"] == ours["changed"], "two changed frames are too few"


def test_the_columns_of_the_paper_in_the_table_are_those_of_its_ways() -> None:
    figure = time_figure.Figure()
    ours, *_, paper = figure.table(figure.metrics(time_rows("moving", 30, 6.0)))
    assert set(paper) < set(ours)


def test_lost_accuracy_is_weighted_by_labelled_frames() -> None:
    def row(clip: str, labelled: int, top1: float) -> dict[str, str]:
        numbers = {"labelled": labelled, "top1": top1, "top3": 1.0, "plain_top1": 0.9, "plain_top3": 1.0}
        numbers |= {"visits": 4, "visit_top1": 1.0, "visit_top3": 1.0}
        numbers |= {"plain_visit_top1": 1.0, "plain_visit_top3": 1.0}
        numbers |= {"deviation": 0.1, "mse": 0.01, "frame_ms": 5.0, "plain_ms": 10.0}
        kept = {"network": "MuseumCNN", "clip": clip, "way": OURS, **DEFAULT._asdict()}
        return {name: str(value) for name, value in {**kept, **numbers}.items()}

    rows = [row("tour standing", 300, 0.9), row("tour walking", 100, 0.8)]
    found = accuracy_figure.Figure().metrics(rows)["ways"]["MuseumCNN"][OURS]
    assert found["top1_lost"] == pytest.approx(2.5)
    assert found["top3_lost"] == 0
    assert found["saved"] == pytest.approx(50)


def test_the_table_of_accuracy_names_frames_visits_and_the_way_of_a_sweep() -> None:
    numbers = {"deviation": 0.1, "mse": 0.01, "saved": 50.0, "top1_lost": 1.0, "top3_lost": 2.0}
    numbers |= {"visit_top1_lost": 3.0, "visit_top3_lost": 4.0}
    summary = {"ways": {"one": {OURS: numbers}}, "sweeps": {"block_px": {"one": {"4": numbers}}}}
    ours, sweep, paper = accuracy_figure.Figure().table(summary)
    assert [ours[f"top-{n} lost, {of} [points]"] for of in ("frames", "visits") for n in (1, 3)] == [
        f"{lost}.00" for lost in range(1, 5)
    ]
    assert sweep["way"] == f"{FIXED}: block [px] = 4"
    assert {name for name in paper if "lost" in name} == {f"top-{n} lost, visits [points]" for n in (1, 3)}


def test_each_network_with_labels_has_targets_of_accuracy() -> None:
    numbers = {"plain_top1": 95.0, "top1_lost": 0.5, "top3_lost": 2.0, "deviation": 0.1}
    trained, random = (dict.fromkeys((OURS, FIXED, OURS_LAST), one) for one in (numbers, {"deviation": 0.1}))
    summary = {"ways": {"AlexNet": random, "GoogLeNet": trained, "MuseumCNN": trained}}
    targets = [one for one in accuracy_figure.Figure().targets(summary) if "lost" in one.text]
    assert [one.reached for one in targets] == [True, False] * 2
    assert ["GoogLeNet" in one.text for one in targets] == [True, True, False, False]


def test_the_label_of_a_visit_is_that_of_its_mean_output() -> None:
    answers = [np.array([one, 0.4, 0.3, 0.2], np.float32) for one in (0.9, 0.3, 0.0, 0.0, 0.9)]
    found = accuracy_figure._accuracy(answers, ["a", "a", "", "b", "d"], tuple("abcd"))
    assert (found["labelled"], found["visits"]) == (4, 3)
    assert (found["top1"], found["top3"]) == (0.5, 0.75)
    assert found["visit_top1"] == pytest.approx(2 / 3, abs=1e-4)


def test_saved_time_is_computed_by_place_and_share_of_the_unchanged_part() -> None:
    rows = [
        {"kind": depth_figure.PARTS, "network": "one", "part": part, "plain": "10", "reuse": reuse}
        for part, reuse in (("30 % centre", "9"), ("30 % corner", "8"), ("90 % centre", "5"))
    ]
    found = depth_figure.Figure().metrics(rows)[depth_figure.PARTS]["one"]
    assert found == {"centre": {"30": 10, "90": 50}, "corner": {"30": 20}}


def test_overhead_has_a_confidence_interval_and_a_limit() -> None:
    rows = [
        {"kind": depth_figure.NOISE, "network": "one", "part": "", "plain": "10", "reuse": reuse}
        for reuse in ("10.2", "10.4") * 4
    ]
    found = depth_figure.Figure().metrics(rows)[depth_figure.NOISE]["one"]
    assert found["overhead_ms"] == pytest.approx(0.3)
    assert found["limit_ms"] == pytest.approx(0.3), "3 % of 10 ms is more than 0.1 ms"
    assert found["interval_ms"] == pytest.approx(0.0894, abs=0.0001), "2.365 standard errors"
    assert found["processes"] == 8
    few = depth_figure.Figure().metrics(rows[:2])[depth_figure.NOISE]["one"]
    assert few["interval_ms"] == pytest.approx(12.706 * 0.1, abs=0.0005)
