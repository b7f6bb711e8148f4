"""Many users at one edge: metrics and targets computed from rows."""

from __future__ import annotations

from nearsight.experiments.studies.cachier.multi_user import BALANCED, BOUNDED, METHODS, NONE, Figure


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


def test_refused_photos_count_with_the_timeout() -> None:
    made = rows({NONE: (10, 1000), BOUNDED: (10, 80), BALANCED: (0.1, 0.1)}, failed=BALANCED)
    one = Figure().metrics(made)["methods"][BALANCED]["32"]
    assert (one["p50_ms"]["median"], one["p95_ms"]["median"], one["failed"]) == (5000.0, 5000.0, 20)


def test_the_targets_are_lower_latency_under_load_and_no_higher_one_without() -> None:
    figure = Figure()
    helps = figure.metrics(rows({NONE: (10, 1000), BOUNDED: (10, 80), BALANCED: (10.5, 90)}))
    assert all(target.reached for target in figure.targets(helps))
    hurts = figure.metrics(rows({NONE: (10, 50), BOUNDED: (13, 80), BALANCED: (10, 40)}, failed=BALANCED))
    missed = {target.text.split(":")[0] for target in figure.targets(hurts) if not target.reached}
    assert missed == {
        *("bounded, 32 photos/s", "bounded, 2 photos/s"),
        *("load-balanced, 32 photos/s", "load-balanced, 2 photos/s"),
    }
