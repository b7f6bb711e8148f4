"""Prefetching: metrics and targets computed from rows, the picture, and the followed visitors."""

from __future__ import annotations

from pathlib import Path

from nearsight.experiments.framework.experiment import Results, RunOptions
from nearsight.experiments.framework.registry import find_experiment
from nearsight.experiments.studies.cachier.prefetching import (
    ADAPTIVE,
    CONFIGURATIONS,
    EDGE_CACHE,
    FIXED,
    GENERATED,
    ONLY_CLOUD,
    REAL,
    Figure,
)
from support.figures import png_size

LATENCY = {ONLY_CLOUD: 150.0, EDGE_CACHE: 20.0, FIXED: 12.0, ADAPTIVE: 10.0}
TIER = {ONLY_CLOUD: "cloud", EDGE_CACHE: "edge", FIXED: "device", ADAPTIVE: "device"}


def rows(traces: tuple[str, ...] = (GENERATED, REAL)) -> list[dict[str, str]]:
    """Ten photos per configuration: one outside the catalogue, and the last three answered by the cloud."""
    made = []
    for trace in traces:
        for name in CONFIGURATIONS:
            for number in range(10):
                expected = "" if number == 0 else "0007"
                row = {
                    "trace": trace,
                    "tiers": name,
                    "repetition": 0,
                    "expected": expected,
                    "answered": expected,
                    "answered_by": TIER[name] if number < 7 else "cloud",
                    "latency_ms": LATENCY[name] if number < 7 else 150.0,
                    "late_ms": 0.1,
                    "sent_bytes": 10,
                }
                made.append({key: str(value) for key, value in row.items()})
    return made


def test_shares_and_recall_are_those_of_the_rows() -> None:
    found = Figure().metrics(rows())["traces"][GENERATED]
    assert found[FIXED]["answered_by"] == {"device": 0.7, "edge": 0.0, "cloud": 0.3}
    assert found[ONLY_CLOUD]["answered_by"]["cloud"] == 1.0
    assert found[FIXED]["recall"] == found[FIXED]["precision"] == 1.0
    assert (found[FIXED]["p50_ms"]["median"], found[FIXED]["failed"], found[FIXED]["wrong"]) == (12.0, 0, 0)


def test_good_rows_reach_all_targets() -> None:
    figure = Figure()
    targets = [*figure.targets(figure.metrics(rows()))]
    assert len(targets) == 18
    assert all(target.reached for target in targets)


def test_a_wrong_answer_of_a_device_misses_the_targets_of_recall_and_precision() -> None:
    figure, made = Figure(), rows((GENERATED,))
    wrong = next(row for row in made if row["tiers"] == ADAPTIVE and row["expected"])
    wrong["answered"] = "0008"
    missed = [target.text for target in figure.targets(figure.metrics(made)) if not target.reached]
    assert len(missed) == 2
    assert all(ADAPTIVE in text and ("recall" in text or "precision" in text) for text in missed)


def test_a_picture_is_drawn() -> None:
    assert png_size(Figure(), rows()) > 10_000


def test_the_share_of_photos_without_an_answer_is_missing_in_table_and_curve() -> None:
    figure, made = Figure(), rows((GENERATED,))
    for row in made[:2]:
        row["answered_by"] = ""
    found = figure.metrics(made)
    assert {line["configuration"]: line["no answer"] for line in figure.table(found)} == {
        **dict.fromkeys(CONFIGURATIONS, 0),
        ONLY_CLOUD: 2,
    }
    curves = {line.get_label(): line for line in figure.draw(Results(made, found)).axes[0].get_lines()}
    highest = {str(label): max(line.get_ydata()) for label, line in curves.items()}
    assert highest["only cloud: p50 150.0 ms, 2 failed"] == 0.8
    assert highest["edge cache: p50 20.0 ms"] == 1.0


def test_real_visitors_are_followed_if_their_visits_are_given(tmp_path: Path) -> None:
    figure = find_experiment("prefetching")
    assert {cell["trace"] for cell in figure.cells(RunOptions())} == {GENERATED}
    cells = figure.cells(RunOptions(visits=tmp_path / "stays.csv"))
    assert {cell["trace"] for cell in cells} == {GENERATED, REAL}
