"""The choice of keys: flows that change, and the comparison with the best choice in hindsight."""

import numpy as np
import pytest

from nearsight.experiments.studies.approximate_keys.choice_figure import BY_HAND, CHOSEN, Figure, padded


def test_in_each_phase_other_packets_repeat() -> None:
    packets = padded(2_000, np.random.default_rng(1)).packets

    def kinds(phase: int, first: int) -> int:
        return len(np.unique(packets[phase * 2_000 : (phase + 1) * 2_000, first : first + 5], axis=0))

    assert kinds(0, 0) < 1_200
    assert kinds(0, 5) < 1_500
    assert kinds(1, 0) < 1_200
    assert kinds(1, 5) == 2_000
    assert kinds(2, 0) == 2_000
    assert kinds(2, 5) < 1_500


def row(keys: str, phase: int, served: int, wrong: int, choice: str = "") -> dict[str, str]:
    return {
        "run": "0",
        "keys": keys,
        "phase": str(phase),
        "window": str(phase),
        "lookups": "1000",
        "served": str(served),
        "wrong": str(wrong),
        "choice": choice,
    }


def test_the_chosen_key_is_compared_with_the_best_one_within_the_budget() -> None:
    rows = [
        row(CHOSEN, 0, 380, 10, "a"),
        row(CHOSEN, 1, 300, 10, "b"),
        row(BY_HAND, 0, 400, 10),
        row(BY_HAND, 1, 0, 0),
        row("a", 0, 390, 30),
        row("a", 1, 310, 11),
    ]
    figure = Figure()
    summary = figure.metrics(rows)
    assert summary["best"] == {"0": BY_HAND, "1": "a"}
    assert summary["changes"]["mean"] == 1
    nearest, fixed, by_hand, wrong = (target.value for target in figure.targets(summary))
    assert nearest == pytest.approx(0.95)
    assert fixed == pytest.approx(680 / 400)
    assert by_hand == pytest.approx(0.95)
    assert wrong == pytest.approx(0.0)
