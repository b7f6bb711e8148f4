"""Many users at one edge: numbers and targets from rows; photos are sent when due."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from nearsight.common.errors import NearsightError, Overloaded
from nearsight.common.recognition.models import Features
from nearsight.device.recognition import Recognition
from nearsight.experiments.studies.cachier.multi_user import (
    BALANCED,
    BOUNDED,
    METHODS,
    NONE,
    Figure,
    stream,
)


def rows(latencies: dict[str, tuple[float, float]], failed: str = "") -> list[dict[str, str]]:
    """Two rates, ten photos each, two repetitions; per method the latency at the light and the heavy rate."""
    return [
        {
            "method": method,
            "rate": rate,
            "repetition": str(repetition),
            "at_s": "7.5",
            "late_ms": "0.1",
            "expected": "a",
            "outcome": "Overloaded" if method == failed else "Recognition",
            "answered_by": "" if method == failed else "edge" if number % 2 else "cloud",
            "latency_ms": str(latency_ms + repetition),
            "cached": "120",
        }
        for method, pair in latencies.items()
        for rate, latency_ms in zip(("2.0", "32.0"), pair, strict=True)
        for repetition in range(2)
        for number in range(10)
    ]


def test_numbers_are_medians_over_repetitions() -> None:
    found = Figure().metrics(rows({NONE: (10, 1000), BOUNDED: (10, 80), BALANCED: (11, 90)}))["methods"]
    assert list(found) == list(METHODS)
    assert found[NONE]["32"]["p50_ms"] == {
        "median": 1000.5,
        "min": 1000.0,
        "max": 1001.0,
        "each": [1000.0, 1001.0],
    }
    assert found[BOUNDED]["2"] | {"p50_ms": 0, "p95_ms": 0} == {
        "p50_ms": 0,
        "p95_ms": 0,
        "edge_share": 0.5,
        "cached": 120,
        "failed": 0,
        "sent_late_p99_ms": 0.1,
        "requests": 20,
    }


def test_methods_must_help_under_load_and_not_hurt_without() -> None:
    figure = Figure()
    helps = figure.metrics(rows({NONE: (10, 1000), BOUNDED: (10, 80), BALANCED: (10.5, 90)}))
    assert all(target.reached for target in figure.targets(helps))
    hurts = figure.metrics(rows({NONE: (10, 50), BOUNDED: (13, 80), BALANCED: (10, 40)}, failed=BALANCED))
    missed = {target.text.split(":")[0] for target in figure.targets(hurts) if not target.reached}
    assert missed == {"bounded, 32 photos/s", "bounded, 2 photos/s", "load-balanced, 32 photos/s"}


class Slow:
    """A recognizer that answers the first photo last."""

    def __init__(self, photos: int) -> None:
        self._left = photos
        self._first: Callable[[Recognition | NearsightError], None] | None = None

    def recognize(
        self,
        image: Features,
        callback: Callable[[Recognition | NearsightError], None],
        *,
        timeout_s: float,
    ) -> None:
        del image, timeout_s
        self._left -= 1
        if self._first is None:
            self._first = callback
            return
        callback(Recognition(None, "edge", 1.0))
        if not self._left:
            threading.Thread(target=self._first, args=(Overloaded("too many"),)).start()


def test_photos_go_out_whatever_the_answers_do(features: Features) -> None:
    sent = stream(Slow(4), [features] * 4, 400.0, timeout_s=5.0)  # type: ignore[arg-type]  # the part it uses
    assert [one.at_s for one in sent] == pytest.approx([0, 0.0025, 0.005, 0.0075])
    assert [one.answered_by for one in sent] == ["", "edge", "edge", "edge"]
    assert not any(np.isnan(one.latency_ms) for one in sent)


@pytest.fixture
def features() -> Features:
    return Features(
        np.zeros((1, 2), np.float32), np.zeros((1, 32), np.uint8), np.ones(1, np.float32), (8, 8), (8, 8)
    )
